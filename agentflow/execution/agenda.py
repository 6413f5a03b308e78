"""Every moment that matters to an execution, soonest first. Never changes: `put` and `without` give another one.

Unlike a `frozen_map` it is kept in order, because the first moment is asked for after every decision; and in parts that
follow one another, so that a change copies one part and not the whole. Inside of a part only the lowest key has its
place, the first; the others are put in order by those who walk over them. A key is made by `due_key` of `state`; the
value beside it is the path or key whose moment it is.
"""

from bisect import bisect_right
from collections.abc import Iterator

import msgspec

_Part = dict[str, str]
_PART_MAX = 96  # measured: smaller ones are quicker to copy, but there are more of them to list


def _first(part: _Part) -> str:
    return next(iter(part))


class Agenda(msgspec.Struct, frozen=True, eq=False, gc=False):
    # None is empty; the first key of each is its lowest, and above all those of the part before.
    parts: tuple[_Part, ...] = ()

    def first(self) -> str | None:
        """The soonest moment's key."""
        return _first(self.parts[0]) if self.parts else None

    def items(self) -> Iterator[tuple[str, str]]:
        for part in self.parts:
            for key in sorted(part):
                yield key, part[key]

    def __contains__(self, key: str) -> bool:
        return bool(self.parts) and key in self.parts[self._at(key)]

    def __bool__(self) -> bool:
        return bool(self.parts)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Agenda):
            return NotImplemented
        return self.parts == other.parts or list(self.items()) == list(other.items())

    __hash__ = None  # type: ignore[assignment]

    def put(self, key: str, of: str) -> "Agenda":
        if not self.parts:
            return Agenda(({key: of},))
        at = self._at(key)
        part = self.parts[at]
        changed = {key: of, **part} if key < _first(part) else {**part, key: of}
        if len(changed) <= _PART_MAX:
            return self._with(at, changed)
        keys, middle = sorted(changed), len(changed) // 2
        return self._with(at, *({one: changed[one] for one in half} for half in (keys[:middle], keys[middle:])))

    def without(self, key: str) -> "Agenda":
        """Without the key; the same agenda where there is no such key."""
        if key not in self:
            return self
        at = self._at(key)
        left = self.parts[at].copy()
        was_first = key == _first(left)
        del left[key]
        if was_first and left:
            lowest = min(left)
            left = left if lowest == _first(left) else {lowest: left[lowest], **left}
        return self._with(at, left) if left else self._with(at)

    def _with(self, at: int, *made: _Part) -> "Agenda":
        """`made` in the place of one part."""
        if len(self.parts) == 1:
            return Agenda(made)
        return Agenda((*self.parts[:at], *made, *self.parts[at + 1 :]))

    def _at(self, key: str) -> int:
        """Which part a key belongs to."""
        return 0 if len(self.parts) == 1 else max(0, bisect_right(self.parts, key, key=_first) - 1)
