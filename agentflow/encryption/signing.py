"""Ed25519 key pairs for signatures that others can check with the public half alone."""

import base64

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat


class KeyPair(msgspec.Struct, frozen=True):
    private_pem: bytes
    public_jwk: dict[str, str]  # RFC 8037, without a key id

    def __repr__(self) -> str:
        return "KeyPair(***)"


def new_key_pair() -> KeyPair:
    private = Ed25519PrivateKey.generate()
    point = private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    return KeyPair(
        private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
        {"kty": "OKP", "crv": "Ed25519", "x": base64.urlsafe_b64encode(point).decode().rstrip("=")},
    )
