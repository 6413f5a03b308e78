"""Which of two versions is newer (Semantic Versioning 2.0.0, §11), and which a constraint allows. Pure."""

from collections.abc import Iterable
from typing import TypeAlias

from semantic_version import NpmSpec, Version

# Numbers sort before words, and a version with fewer identifiers before one that continues it.
_Identifier: TypeAlias = tuple[int, int, str]
Precedence: TypeAlias = tuple[bool, tuple[int, ...], tuple[_Identifier, ...]]


def precedence(version: str) -> Precedence:
    """A sort key: the highest is what a bare name means.

    Any release ranks above any pre-release, which is our addition to the standard: starting `support` must not
    move to 2.0.0-rc.1 while 1.9.0 is the newest release.
    """
    core, _, pre = version.partition("+")[0].partition("-")
    return not pre, tuple(int(number) for number in core.split(".")), tuple(map(_identifier, pre.split(".")))


def _identifier(text: str) -> _Identifier:
    return (0, int(text), "") if text.isdecimal() else (1, 0, text)


def highest(constraint: str, versions: Iterable[str]) -> str | None:
    """The newest of these that a range in npm's notation allows (`^1.2`, `~1.2.3`, `>=1 <3`, `*`); None without one."""
    allowed = NpmSpec(constraint or "*")
    return max((version for version in versions if Version(version) in allowed), key=precedence, default=None)
