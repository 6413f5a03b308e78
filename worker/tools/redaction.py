"""A call's arguments as they may be written down: secrets gone, long texts cut. Pure.

By name (`password`, `token` …), by shape (keys and tokens of known makes) and by value (what the proxy puts in for
this call). It keeps records readable; what keeps secrets in is that a tool never holds them (`sandbox.egress`).
"""

import hashlib
import re
from collections.abc import Collection
from typing import Any

HIDDEN = "***"
_TEXT_CHARS_MAX = 256
_ITEMS_MAX = 50
_DEPTH_MAX = 8
_SECRET_NAMES = re.compile(
    r"pass(word|wd|phrase)?$|secret|token|authori[sz]ation|api[-_]?key|access[-_]?key|private[-_]?key|credential|cookie"
    r"|session|^pin$|^cvv$|^ssn$",
    re.IGNORECASE,
)
_SECRET_SHAPES = re.compile(
    r"(?:bearer|basic)\s+[\w.~+/=-]{8,}"
    r"|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"  # a JSON Web Token
    r"|(?:AKIA|ASIA)[0-9A-Z]{16}"
    r"|gh[pousr]_\w{20,}|github_pat_\w{20,}|xox[abprs]-[\w-]{10,}|sk-[\w-]{16,}|AIza[\w-]{30,}"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*"
    r"|(?<=://)[^/\s:@]+:[^/\s@]+(?=@)",
    re.IGNORECASE,
)


def redacted(value: Any, *, secrets: Collection[str] = (), depth: int = 0) -> Any:
    """`secrets` are values that must not appear, whatever they look like."""
    match value:
        case str():
            return _text(value, secrets)
        case dict() if depth < _DEPTH_MAX:
            shown = list(value.items())[:_ITEMS_MAX]
            kept = {
                _text(str(name), secrets): HIDDEN
                if _SECRET_NAMES.search(str(name)) and item not in (None, "", True, False)
                else redacted(item, secrets=secrets, depth=depth + 1)
                for name, item in shown
            }
            return kept | ({"…": f"{len(value) - _ITEMS_MAX} more"} if len(value) > _ITEMS_MAX else {})
        case list() | tuple() if depth < _DEPTH_MAX:
            kept_items = [redacted(item, secrets=secrets, depth=depth + 1) for item in value[:_ITEMS_MAX]]
            return kept_items + ([f"… {len(value) - _ITEMS_MAX} more"] if len(value) > _ITEMS_MAX else [])
        case dict() | list() | tuple():
            return "…"
        case _:
            return value


def _text(text: str, secrets: Collection[str]) -> str:
    for secret in secrets:
        if secret:
            text = text.replace(secret, HIDDEN)
    text = _SECRET_SHAPES.sub(HIDDEN, text)
    if len(text) <= _TEXT_CHARS_MAX:
        return text
    digest = hashlib.sha256(text.encode(errors="replace")).hexdigest()[:12]
    return f"{text[:_TEXT_CHARS_MAX]}… ({len(text)} characters, sha256 {digest})"
