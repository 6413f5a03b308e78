"""A queue that tenants share: each in turn gives one item, so that nobody waits behind a flood of somebody else's.

Within a tenant the higher priority goes first, and among equals whoever came first. Pure: no clock, no waiting.
"""

import heapq
from collections import OrderedDict
from typing import Generic, TypeVar

from agentflow.ids import TenantId

T = TypeVar("T")


class FairQueue(Generic[T]):
    def __init__(self) -> None:
        self._lines: OrderedDict[TenantId, list[tuple[int, int, T]]] = OrderedDict()  # whose turn it is comes first
        self._count = 0
        self._put = 0

    def __len__(self) -> int:
        return self._count

    def waiting(self, tenant: TenantId) -> int:
        return len(self._lines.get(tenant, ()))

    def put(self, tenant: TenantId, item: T, *, priority: int = 0) -> None:
        self._put += 1  # unique, so the heap never compares items
        heapq.heappush(self._lines.setdefault(tenant, []), (-priority, self._put, item))
        self._count += 1

    def take(self) -> T:
        """The next item. Raises `LookupError` when there is none."""
        tenant, line = next(iter(self._lines.items()), (None, None))
        if tenant is None or line is None:
            raise LookupError("nothing waits")
        _, _, item = heapq.heappop(line)
        if line:
            self._lines.move_to_end(tenant)
        else:
            del self._lines[tenant]
        self._count -= 1
        return item
