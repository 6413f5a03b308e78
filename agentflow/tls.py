"""How one part of a deployment speaks TLS with another: whom it trusts, and what it shows of itself.

For NATS, PostgreSQL and the API alike. A certificate is always verified, with its name; there is no way to switch that
off, because whoever needs it needs an authority of their own instead (`af certs init`).
"""

import ssl
from pathlib import Path

import msgspec

from agentflow.errors import Rejected


class UnusableCertificate(Rejected):
    code = "AF1502"

    def __init__(self, what: str, reason: str) -> None:
        super().__init__(
            f"{what} cannot be used: {reason}.",
            hint="Check AF_TLS_CA_FILE, AF_TLS_CERT_FILE and AF_TLS_KEY_FILE; `af certs init` makes files that fit.",
        )


class TlsFiles(msgspec.Struct, frozen=True):
    """`ca`: whose certificates are trusted, instead of those the machine trusts. The pair is shown to who asks."""

    ca: Path | str | None = None
    certificate: Path | str | None = None
    key: Path | str | None = None


def client_context(files: TlsFiles) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=None if files.ca is None else str(files.ca))
    except (OSError, ssl.SSLError) as error:
        raise UnusableCertificate(f"The authority {files.ca}", error.strerror or str(error)) from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if files.certificate is not None and files.key is not None:
        try:
            context.load_cert_chain(files.certificate, files.key)
        except (OSError, ssl.SSLError) as error:
            raise UnusableCertificate(f"The certificate {files.certificate}", error.strerror or str(error)) from None
    return context
