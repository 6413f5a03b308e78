"""The word a person probably meant: one way to guess, for every message that names something unknown."""

from collections.abc import Iterable
from difflib import get_close_matches

_SHOWN_MAX = 12


def closest(word: str, known: Iterable[str]) -> str | None:
    known = list(known)
    by_lower = {name.lower(): name for name in reversed(known)}
    found = get_close_matches(word.lower(), by_lower, n=1, cutoff=0.6)
    return by_lower[found[0]] if found else None


def did_you_mean(word: str, known: Iterable[str], *, kind: str) -> str:
    """`Did you mean `x`?`, or else the choices there are: `Known keys: a, b.`"""
    known = list(known)
    if guess := closest(word, known):
        return f"Did you mean `{guess}`?"
    if not known:
        return f"There are no {kind} here."
    rest = len(known) - _SHOWN_MAX
    return f"Known {kind}: {', '.join(known[:_SHOWN_MAX])}{f' and {rest} more' if rest > 0 else ''}."
