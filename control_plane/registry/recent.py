"""The most recently used of things that can always be made again: a bound on what is kept ready."""

from collections import OrderedDict
from typing import Generic, TypeVar

T = TypeVar("T")


class Recent(Generic[T]):
    def __init__(self, size_max: int) -> None:
        self._size_max = size_max
        self._kept: OrderedDict[str, T] = OrderedDict()

    def get(self, key: str) -> T | None:
        if key in self._kept:
            self._kept.move_to_end(key)
        return self._kept.get(key)

    def keep(self, key: str, value: T) -> T:
        self._kept[key] = value
        self._kept.move_to_end(key)
        if len(self._kept) > self._size_max:
            self._kept.popitem(last=False)
        return value

    def drop(self, key: str) -> None:
        self._kept.pop(key, None)
