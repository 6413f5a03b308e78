"""A mapping that never changes: `put` and `without` give another one, which shares nearly everything with the old.

Kept in key order in small parts, so a change copies one part and not the whole: ten thousand entries cost little
more to change than ten. The order of keys depends neither on history nor on Python's hash seed. A struct, so that
msgspec writes it to JSON and back by itself.
"""

from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping
from operator import itemgetter
from typing import Any, Generic, TypeVar

import msgspec

V = TypeVar("V")

_PART_MAX = 64
_FEW = 16
_key_of = itemgetter(0)


def _first(part: dict[str, Any]) -> str:
    return next(iter(part))


class FrozenMap(msgspec.Struct, Generic[V], frozen=True, eq=False):
    parts: tuple[dict[str, V], ...] = ()  # none is empty; keys rise within each and from each to the next

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
            yield from part

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
            yield from part.values()

    def items(self) -> Iterator[tuple[str, V]]:
        for part in self.parts:
            yield from part.items()

    def first(self) -> str | None:
        """The lowest key."""
        return _first(self.parts[0]) if self.parts else None

    def put(self, key: str, value: V) -> "FrozenMap[V]":
        parts = self.parts
        if not parts:
            return FrozenMap(({key: value},))
        at = self._at(key)
        part = parts[at]
        if key in part or key > next(reversed(part)):
            changed = {**part, key: value}
        else:
            changed = dict(sorted([*part.items(), (key, value)], key=_key_of))
        if len(changed) > _PART_MAX:
            entries, middle = list(changed.items()), len(changed) // 2
            return FrozenMap((*parts[:at], dict(entries[:middle]), dict(entries[middle:]), *parts[at + 1 :]))
        return FrozenMap((changed,) if len(parts) == 1 else (*parts[:at], changed, *parts[at + 1 :]))

    def without(self, key: str) -> "FrozenMap[V]":
        """Without the key; the same mapping where there is no such key."""
        if key not in self:
            return self
        at = self._at(key)
        left = self.parts[at].copy()
        del left[key]
        return FrozenMap((*self.parts[:at], *((left,) if left else ()), *self.parts[at + 1 :]))

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
        return FrozenMap(tuple(part for part in left if part))

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
