"""A mapping that never changes: `put` and `without` give another one, which shares nearly everything with the old.

A hash trie (`immutables`, the structure behind Python's own context variables): a change among ten thousand entries
costs about what one among ten does. A trie has no order that two processes would agree on, so everything that walks
over one walks in the order of its keys, and what is written to JSON is in that order too.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Generic, TypeVar, get_args

import msgspec
from immutables import Map

V = TypeVar("V")


class FrozenMap(msgspec.Struct, Generic[V], frozen=True, eq=False, gc=False):
    entries: Map[str, V] = msgspec.field(default_factory=Map)

    def get(self, key: str) -> V | None:
        return self.entries.get(key)

    def __getitem__(self, key: str) -> V:
        return self.entries[key]

    def __contains__(self, key: object) -> bool:
        return key in self.entries

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self.entries))

    def __len__(self) -> int:
        return len(self.entries)

    def __eq__(self, other: object) -> bool:
        return self.entries == other.entries if isinstance(other, FrozenMap) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def keys(self) -> Iterator[str]:
        return iter(self)

    def values(self) -> Iterator[V]:
        return map(self.entries.__getitem__, sorted(self.entries))

    def items(self) -> Iterator[tuple[str, V]]:
        return ((key, self.entries[key]) for key in sorted(self.entries))

    def put(self, key: str, value: V) -> "FrozenMap[V]":
        return FrozenMap(self.entries.set(key, value))

    def put_all(self, changes: Mapping[str, V]) -> "FrozenMap[V]":
        return FrozenMap(self.entries.update(changes)) if changes else self

    def without(self, key: str) -> "FrozenMap[V]":
        """Without the key; the same mapping where there is no such key."""
        return FrozenMap(self.entries.delete(key)) if key in self.entries else self

    def without_all(self, keys: Collection[str]) -> "FrozenMap[V]":
        if not keys:
            return self
        left = self.entries.mutate()
        for key in keys:
            left.pop(key, None)
        return FrozenMap(left.finish())


def from_json(kind: Any, value: Any) -> Any:
    """The `dec_hook` of whoever reads a struct with such mappings in it."""
    if getattr(kind, "__origin__", None) is not Map:
        raise NotImplementedError(f"{kind} is not JSON")
    return Map(msgspec.convert(value, dict[get_args(kind)], dec_hook=from_json))  # type: ignore[misc]


class Reading(Mapping[str, V]):
    """A frozen map as the standard library's `Mapping`, which a struct cannot be."""

    __slots__ = ("_map",)

    def __init__(self, map: FrozenMap[V]) -> None:
        self._map = map

    def __getitem__(self, key: str) -> V:
        return self._map.entries[key]

    def get(self, key: str, default: Any = None) -> Any:
        return self._map.entries.get(key, default)

    def __contains__(self, key: object) -> bool:
        return key in self._map.entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._map)

    def __len__(self) -> int:
        return len(self._map.entries)
