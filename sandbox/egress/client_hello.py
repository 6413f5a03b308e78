"""The name a TLS client asks for, read from its first flight (RFC 8446 §4.1.2, RFC 6066 §3). Pure.

Only enough of TLS to know the server's name with certainty: exactly one name, and no encrypted hello beside it.
"""

from sandbox.egress.policy import Refused, parse_host

HELLO_BYTES_MAX = 64 * 1024

_HANDSHAKE, _CLIENT_HELLO = 22, 1
_SERVER_NAME, _ENCRYPTED_HELLO = 0, 0xFE0D


class _Short(Exception):
    """The bytes end before the thing they describe."""


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    def take(self, count: int) -> bytes:
        if self.left < count:
            raise _Short
        self._at += count
        return self._data[self._at - count : self._at]

    def number(self, width: int) -> int:
        return int.from_bytes(self.take(width))

    def block(self, width: int) -> "_Reader":
        """What follows its own length."""
        return _Reader(self.take(self.number(width)))


def server_name(raw: bytes) -> str | None:
    """The name in the hello, or None while more bytes must come. `Refused` where there is none, or doubt."""
    try:
        message = _handshake(raw)
    except _Short:
        if len(raw) > HELLO_BYTES_MAX:
            raise _refused("it does not end") from None
        return None
    try:
        return _name_in(message)
    except _Short:
        raise _refused("its parts do not fit together") from None


def _handshake(raw: bytes) -> _Reader:
    """The hello, put together from as many records as it was cut into."""
    records, payload = _Reader(raw), bytearray()
    while True:
        if records.number(1) != _HANDSHAKE:
            raise _refused("it does not begin with a handshake")
        records.number(2)  # the version of the record, which means nothing any more
        record = records.block(2)
        payload += record.take(record.left)
        if len(payload) >= 4:
            if payload[0] != _CLIENT_HELLO:
                raise _refused("it does not begin with a hello")
            length = int.from_bytes(payload[1:4])
            if length > HELLO_BYTES_MAX:
                raise _refused("it is too long")
            if len(payload) >= 4 + length:
                return _Reader(bytes(payload[4 : 4 + length]))


def _name_in(hello: _Reader) -> str:
    hello.take(2 + 32)  # version, random
    hello.block(1)  # session
    hello.block(2)  # ciphers
    hello.block(1)  # compression
    names: list[str] = []
    extensions = hello.block(2)
    while extensions.left:
        kind, body = extensions.number(2), extensions.block(2)
        if kind == _ENCRYPTED_HELLO:
            raise Refused("ech_denied", "An encrypted ClientHello hides where it goes.", "Turn ECH off in the client.")
        if kind == _SERVER_NAME:
            entries = body.block(2)
            while entries.left:
                if entries.number(1) != 0:
                    raise _refused("it names its server in an unknown way")
                entry = entries.block(2)
                names.append(entry.take(entry.left).decode("latin-1"))
    if len(names) != 1:
        raise Refused("sni_missing", "TLS without exactly one server name does not leave the sandbox.")
    return parse_host(names[0])


def _refused(reason: str) -> Refused:
    return Refused("tls_malformed", f"The TLS hello was not understood: {reason}.")
