"""Ed25519 key pairs for signatures that others can check with the public half alone."""

import base64

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)

from agentflow.errors import Bug


class KeyPair(msgspec.Struct, frozen=True):
    private_pem: bytes
    public_jwk: dict[str, str]  # RFC 8037, without a key id

    def __repr__(self) -> str:
        return "KeyPair(***)"


def new_key_pair() -> KeyPair:
    private = Ed25519PrivateKey.generate()
    return KeyPair(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()), _jwk(private.public_key()))


def sign(private_pem: bytes, text: bytes) -> tuple[str, dict[str, str]]:
    """The signature, and the public half that it can be checked with."""
    private = load_pem_private_key(private_pem, None)
    if not isinstance(private, Ed25519PrivateKey):
        raise Bug("A key that should sign is not an Ed25519 key.")
    return _text(private.sign(text)), _jwk(private.public_key())


def is_signed(public_jwk: dict[str, str], text: bytes, signature: str) -> bool:
    """Whether whoever has the private half has signed exactly this."""
    try:
        Ed25519PublicKey.from_public_bytes(_raw(public_jwk.get("x", ""))).verify(_raw(signature), text)
    except (InvalidSignature, ValueError):
        return False
    return True


def _jwk(public: Ed25519PublicKey) -> dict[str, str]:
    return {"kty": "OKP", "crv": "Ed25519", "x": _text(public.public_bytes(Encoding.Raw, PublicFormat.Raw))}


def _text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _raw(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
