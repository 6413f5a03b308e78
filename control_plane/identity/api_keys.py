"""API keys: `afk_<id>_<secret>`. The id is shown and looked up, the secret is shown once and kept as a hash.

The secret has 256 random bits, so a plain hash is enough: there is nothing to guess through.
"""

import hashlib
import hmac
import re
import secrets

import msgspec

_MARK = "afk_"
_ALPHABET = "abcdefghijklmnopqrstuvwxyz234567"
_KEY = re.compile(r"(afk_[a-z2-7]{16})_([a-z2-7]{52})", re.ASCII)


class NewKey(msgspec.Struct, frozen=True):
    id: str
    text: str  # the whole key, for whoever asked for it and nobody else
    hashed_secret: str

    def __repr__(self) -> str:
        return f"NewKey({self.id})"


def new_id() -> str:
    return _MARK + _letters(16)


def new_key(key_id: str | None = None) -> NewKey:
    key_id, secret = key_id or new_id(), _letters(52)
    return NewKey(key_id, f"{key_id}_{secret}", _hashed(secret))


def looks_like_key(presented: str) -> bool:
    return presented.startswith(_MARK)


def parse(presented: str) -> tuple[str, str] | None:
    """The id and the secret, or None for what was never made by us."""
    match = _KEY.fullmatch(presented)
    return None if match is None else (match[1], match[2])


def fits(secret: str, hashed_secret: str) -> bool:
    return hmac.compare_digest(_hashed(secret), hashed_secret)


def _hashed(secret: str) -> str:
    return hashlib.sha256(b"agentflow/api-key/v1\0" + secret.encode()).hexdigest()


def _letters(count: int) -> str:
    return "".join(secrets.choice(_ALPHABET) for _ in range(count))
