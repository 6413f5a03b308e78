"""What a literal of CEL stands for: escapes of text and bytes, numbers and their range.

Shared by `dialect`, which refuses a bad one with its place, and by the engine that has no reader of its own.
"""

import re

_ESCAPE = re.compile(
    r"\\(?:(?P<plain>[abfnrtv\"'`?\\])|[xX](?P<hex>[0-9a-fA-F]{2})|u(?P<short>[0-9a-fA-F]{4})"
    r"|U(?P<long>[0-9a-fA-F]{8})|(?P<octal>[0-3][0-7]{2})|(?P<wrong>.?))",
    re.DOTALL,
)
_PLAIN = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_INT_MAX, _UINT_MAX = 2**63 - 1, 2**64 - 1


class BadLiteral(Exception):
    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.message, self.hint = message, hint


def text_or_bytes(token: str) -> str | bytes:
    """The value of a string or bytes literal as it stands in the text, quotes and prefixes included."""
    prefix = token[: len(token) - len(token.lstrip("bBrR"))].lower()
    body = token[len(prefix) :]
    quotes = 3 if len(body) >= 6 and body[:3] in ('"""', "'''") else 1
    body = body[quotes:-quotes]
    if "r" in prefix and body.endswith("\\") and (len(body) - len(body.rstrip("\\"))) % 2:
        # To Google's reader the quote after it is not the end; the other engine's knows no such thing.
        raise BadLiteral("A raw text cannot end with a backslash.", "Write it without `r`, with two backslashes.")
    if "b" not in prefix:
        return body if "r" in prefix else _ESCAPE.sub(_character, body)
    if "r" in prefix:
        return body.encode()
    return b"".join(
        piece.encode() if at % 2 == 0 else _octet(piece) for at, piece in enumerate(_with_escapes(body))
    )  # fmt: skip


def number(token: str) -> tuple[int | float, str]:
    """The value and the type of a number, with its sign if it has one."""
    digits = token.lstrip("-")
    kind = "uint" if digits[-1] in "uU" else "int"
    digits = digits.rstrip("uU") if kind == "uint" else digits
    if not digits.startswith("0x") and any(mark in digits for mark in ".eE"):
        return float(token), "double"
    value = int(digits, 16) if digits.startswith("0x") else int(digits, 10)
    value = -value if token.startswith("-") else value
    if kind == "uint" and value > _UINT_MAX:
        raise BadLiteral(f"`{token}` is too large.", "A number with `u` has 64 bits.")
    if kind == "int" and not -_INT_MAX - 1 <= value <= _INT_MAX:
        raise BadLiteral(f"`{token}` is too large.", "A whole number has 64 bits; write `1e30` for a large one.")
    return value, kind


def _with_escapes(body: str) -> list[str]:
    """Plain pieces and escapes in turn, beginning and ending with a plain one."""
    pieces, done = [], 0
    for found in _ESCAPE.finditer(body):
        pieces += [body[done : found.start()], found[0]]
        done = found.end()
    return [*pieces, body[done:]]


def _character(found: re.Match[str]) -> str:
    if (plain := found["plain"]) is not None:
        return _PLAIN.get(plain, plain)
    if found["wrong"] is not None:
        raise _wrong(found[0])
    digits = found["hex"] or found["short"] or found["long"]
    point = int(digits, 16) if digits else int(found["octal"], 8)
    if point > 0x10FFFF or 0xD800 <= point <= 0xDFFF:
        raise BadLiteral(f"`{found[0]}` is no character.", "Characters go from \\u0000 to \\U0010FFFF.")
    return chr(point)


def _octet(escape: str) -> bytes:
    found = _ESCAPE.fullmatch(escape)
    if found is None or found["wrong"] is not None:
        raise _wrong(escape)
    if found["short"] or found["long"]:
        raise BadLiteral(f"`{escape}` is a character, and bytes have none.", "Write bytes as `\\x00` to `\\xff`.")
    if found["plain"] is not None:
        return _character(found).encode()
    return bytes([int(found["hex"], 16) if found["hex"] else int(found["octal"], 8)])


def _wrong(escape: str) -> BadLiteral:
    hint = r"Known are \n \t \r \\ \' \" \x41 \u00e9 \U0001F600; in r'…' a backslash is only itself."
    return BadLiteral(f"`{escape}` is no escape.", hint)
