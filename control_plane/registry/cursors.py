"""Where a page of a list ended, as an opaque text that comes back with the question for the next page.

It is checked (whole, and of the same question), not secret: it holds nothing but a row's place in a list of the
caller's own. REST calls it `cursor`, gRPC `page_token`.
"""

import binascii
import hashlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Any

import msgspec

from agentflow.errors import Rejected

Key = tuple[Any, ...]

_CHECK_BYTES = 6


class BadCursor(Rejected):
    code = "AF1012"

    def __init__(self) -> None:
        super().__init__(
            "The cursor is damaged, or belongs to a list with other filters or another order.",
            hint="Send `next_cursor` as it was given, with the same filters and sort; or begin again without a cursor.",
        )


def cursor_of(question: str, key: Key) -> str:
    content = msgspec.json.encode(key)
    return urlsafe_b64encode(_check(question, content) + content).rstrip(b"=").decode()


def key_of(question: str, cursor: str) -> Key:
    """Raises `BadCursor` where it was not made for this question."""
    try:
        raw = urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
    except (binascii.Error, ValueError):
        raise BadCursor from None
    check, content = raw[:_CHECK_BYTES], raw[_CHECK_BYTES:]
    if check != _check(question, content):
        raise BadCursor
    return _place(msgspec.json.decode(content))


def _place(value: list[Any]) -> Key:
    """JSON has no tuples, and a place is compared with one."""
    return tuple(_place(part) if isinstance(part, list) else part for part in value)


def _check(question: str, content: bytes) -> bytes:
    return hashlib.sha256(question.encode("utf-8", "surrogatepass") + b"\0" + content).digest()[:_CHECK_BYTES]
