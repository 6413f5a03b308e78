"""Ends TLS of the sandbox at the proxy, for hosts whose requests get a credential that the sandbox must not hold.

An authority made at the worker's start and never stored signs a certificate for each such host; sandboxes are given
the authority's certificate (`authority_pem`), and nobody else trusts it. All other TLS stays end to end.
"""

import asyncio
import contextlib
import datetime
import socket
import ssl
import tempfile
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from sandbox.egress.wire import Wire

_EPOCH = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)  # before any clock a sandbox may have
_LIFE = datetime.timedelta(days=365 * 100)  # the authority lives as long as its process; its dates need not say so


class Terminator:
    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "AgentFlow egress, this worker only")])
        self._name = name
        self._authority = (
            _certificate(name, name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .add_extension(_usage(sign=True), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self._contexts: dict[str, ssl.SSLContext] = {}

    @property
    def authority_pem(self) -> str:
        return self._authority.public_bytes(serialization.Encoding.PEM).decode()

    async def opened(self, wire: Wire, host: str) -> Wire:
        """What the client says inside its TLS, as a wire of its own; closing that one ends both."""
        ours, theirs = socket.socketpair()
        try:
            reader, writer = await asyncio.open_connection(sock=ours)
            plain = Wire(reader, writer)
            moving = asyncio.gather(_move(wire, plain), _move(plain, wire))
            clear = asyncio.StreamReader()
            protocol = asyncio.StreamReaderProtocol(clear)
            loop = asyncio.get_running_loop()
            transport, _ = await loop.connect_accepted_socket(lambda: protocol, theirs, ssl=self._context(host))
        except BaseException:
            ours.close()
            theirs.close()
            raise
        return _Terminated(clear, asyncio.StreamWriter(transport, protocol, clear, loop), moving, plain)

    def _context(self, host: str) -> ssl.SSLContext:
        if host not in self._contexts:
            self._contexts[host] = self._made(host)
        return self._contexts[host]

    def _made(self, host: str) -> ssl.SSLContext:
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host[:64])])
        certificate = (
            _certificate(name, self._name, key.public_key())
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(_usage(sign=False), critical=True)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.set_alpn_protocols(["http/1.1"])
        # The library reads certificates from files only; this one is gone before anybody could look.
        with tempfile.TemporaryDirectory(prefix="af-leaf-") as folder:
            pem = Path(folder) / "leaf.pem"
            pem.touch(mode=0o600)
            pem.write_bytes(
                key.private_bytes(
                    serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
                )
                + certificate.public_bytes(serialization.Encoding.PEM)
            )
            context.load_cert_chain(pem)
        return context


class _Terminated(Wire):
    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        moving: asyncio.Future[tuple[None, None]],
        plain: Wire,
    ) -> None:
        super().__init__(reader, writer)
        self._moving = moving
        self._plain = plain

    async def close(self) -> None:
        await super().close()
        await asyncio.wait([self._moving], timeout=1.0)
        self._moving.cancel()
        await asyncio.gather(self._moving, return_exceptions=True)
        await self._plain.close()


async def _move(source: Wire, target: Wire) -> None:
    with contextlib.suppress(OSError):
        while data := await source.read():
            await target.write(data)
    target.end()


def _certificate(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(_EPOCH)
        .not_valid_after(_EPOCH + _LIFE)
    )


def _usage(*, sign: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=sign,
        crl_sign=sign,
        encipher_only=False,
        decipher_only=False,
    )
