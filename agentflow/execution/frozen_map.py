"""A mapping that never changes: `put` and `without` give another one, which shares nearly everything with the old.

Kept in parts that follow one another in key order, so a change copies one part and not the whole: ten thousand
entries cost little more to change than ten. Inside of a part only the lowest key has its place, the first; the others
are put in order by those who walk over them. So the order of keys depends neither on history nor on Python's hash
seed, and a change never has to sort. A struct, so that msgspec writes it to JSON and back by itself.
"""

from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Generic, TypeVar

import msgspec

V = TypeVar("V")

_PART_MAX = 96  # measured: smaller ones are quicker to copy, but there are more of them to list
_FEW = 16


def _first(part: dict[str, Any]) -> str:
    return next(iter(part))


def _put(part: dict[str, V], key: str, value: V) -> tuple[dict[str, V], ...]:
    """The part with the entry in it, or two where one would be too large."""
    changed = {key: value, **part} if key < _first(part) else {**part, key: value}
    if len(changed) <= _PART_MAX:
        return (changed,)
    keys, middle = sorted(changed), len(changed) // 2
    return {one: changed[one] for one in keys[:middle]}, {one: changed[one] for one in keys[middle:]}


def _lowest_first(part: dict[str, V]) -> dict[str, V]:
    lowest = min(part)
    return part if lowest == _first(part) else {lowest: part[lowest], **part}


class FrozenMap(msgspec.Struct, Generic[V], frozen=True, eq=False):
    # None is empty; the first key of each is its lowest, and above all those of the part before.
    parts: tuple[dict[str, V], ...] = ()

    def get(self, key: str) -> V | None:
        parts = self.parts
        if len(parts) == 1:
            return parts[0].get(key)
        return parts[self._at(key)].get(key) if parts else None

    def __getitem__(self, key: str) -> V:
        if not self.parts:
            raise KeyError(key)
        return self.parts[self._at(key)][key]

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and bool(self.parts) and key in self.parts[self._at(key)]

    def __iter__(self) -> Iterator[str]:
        for part in self.parts:
            yield from sorted(part)

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    def __bool__(self) -> bool:
        return bool(self.parts)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FrozenMap):
            return NotImplemented
        return self.parts == other.parts or list(self.items()) == list(other.items())

    __hash__ = None  # type: ignore[assignment]

    def keys(self) -> Iterator[str]:
        return iter(self)

    def values(self) -> Iterator[V]:
        for part in self.parts:
            yield from map(part.__getitem__, sorted(part))

    def items(self) -> Iterator[tuple[str, V]]:
        for part in self.parts:
            for key in sorted(part):
                yield key, part[key]

    def first(self) -> str | None:
        """The lowest key."""
        return _first(self.parts[0]) if self.parts else None

    def put(self, key: str, value: V) -> "FrozenMap[V]":
        parts = self.parts
        if not parts:
            return FrozenMap(({key: value},))
        at = self._at(key)
        made = _put(parts[at], key, value)
        return self._with(at, made[0]) if len(made) == 1 else FrozenMap((*parts[:at], *made, *parts[at + 1 :]))

    def put_all(self, changes: Mapping[str, V]) -> "FrozenMap[V]":
        """Several at once: the list of parts is made anew once and not for each."""
        if len(changes) < 2 or len(self.parts) < 2:
            changed = self
            for key, value in changes.items():
                changed = changed.put(key, value)
            return changed
        parts = list(self.parts)
        for key, value in changes.items():
            at = max(0, bisect_right(parts, key, key=_first) - 1)
            parts[at : at + 1] = _put(parts[at], key, value)
        return FrozenMap(tuple(parts))

    def without(self, key: str) -> "FrozenMap[V]":
        """Without the key; the same mapping where there is no such key."""
        if not self.parts:
            return self
        at = self._at(key)
        part = self.parts[at]
        if key not in part:
            return self
        if len(part) == 1:
            return FrozenMap((*self.parts[:at], *self.parts[at + 1 :]))
        left = part.copy()
        del left[key]
        return self._with(at, _lowest_first(left) if key == _first(part) else left)

    def without_all(self, keys: Collection[str]) -> "FrozenMap[V]":
        """Without any of the keys, in one pass: for when many go at once."""
        if len(keys) <= _FEW:
            fewer = self
            for key in keys:
                fewer = fewer.without(key)
            return fewer
        gone = set(keys)
        left = (
            part if gone.isdisjoint(part) else {key: value for key, value in part.items() if key not in gone}
            for part in self.parts
        )
        return FrozenMap(tuple(_lowest_first(part) for part in left if part))

    def _with(self, at: int, part: dict[str, V]) -> "FrozenMap[V]":
        if len(self.parts) == 1:
            return FrozenMap((part,))
        parts = list(self.parts)
        parts[at] = part
        return FrozenMap(tuple(parts))

    def _at(self, key: str) -> int:
        """Which part a key belongs to."""
        return 0 if len(self.parts) == 1 else max(0, bisect_right(self.parts, key, key=_first) - 1)


class Reading(Mapping[str, V]):
    """A frozen map as the standard library's `Mapping`, which a struct cannot be."""

    __slots__ = ("_map",)

    def __init__(self, map: FrozenMap[V]) -> None:
        self._map = map

    def __getitem__(self, key: str) -> V:
        return self._map[key]

    def get(self, key: str, default: Any = None) -> Any:
        value = self._map.get(key)
        return default if value is None and key not in self._map else value

    def __contains__(self, key: object) -> bool:
        return key in self._map

    def __iter__(self) -> Iterator[str]:
        return iter(self._map)

    def __len__(self) -> int:
        return len(self._map)
