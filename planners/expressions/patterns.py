"""The one door to RE2: regular expressions whose time grows with the text and with nothing else.

Patterns of other engines (look-around, back references) are refused: they are how a pattern hangs a program.
"""

from functools import lru_cache
from typing import Any

import re2  # type: ignore[import-untyped]

_OPTIONS = re2.Options()
_OPTIONS.log_errors = False
_OPTIONS.max_mem = 1 << 20  # a megabyte of automaton: plenty for a pattern that a person wrote


class BadPattern(Exception):
    """A pattern that RE2 does not take; the message is what it said."""


@lru_cache(maxsize=512)
def _compiled(pattern: str) -> Any:
    try:
        return re2.compile(pattern, _OPTIONS)
    except re2.error as error:
        said = error.args[0] if error.args else "it cannot be read"
        raise BadPattern(said.decode() if isinstance(said, bytes) else str(said)) from None


def search(pattern: str, text: str) -> bool:
    """Whether the pattern occurs in the text. Raises `BadPattern`."""
    return _compiled(pattern).search(text) is not None


def full_match(pattern: str, text: str) -> bool:
    """Whether the pattern is all of the text. Raises `BadPattern`."""
    return _compiled(pattern).fullmatch(text) is not None


def refuse_bad(pattern: str) -> None:
    """Raises `BadPattern`."""
    _compiled(pattern)
