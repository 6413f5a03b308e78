"""The chain as it is read: what people look for in it, and the signed checkpoint of where it ends."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import msgspec

from agentflow.clock import Clock, rfc3339
from agentflow.contracts.audit import Checkpoint, Link, checkpoint_text
from agentflow.encryption.signing import sign
from agentflow.ids import TenantId


class AuditFilter(msgspec.Struct, frozen=True):
    """What is None does not matter."""

    actor: str | None = None
    action: str | None = None
    resource_type: str | None = None
    resource: str | None = None
    outcomes: tuple[str, ...] | None = None
    since_ms: int | None = None
    until_ms: int | None = None


class Links(Protocol):
    """A tenant's chain, as far as it is chained."""

    async def page(
        self, tenant: TenantId, wanted: AuditFilter, *, limit: int, after: int | None, newest_first: bool
    ) -> Sequence[Link]:
        """`after` is the number of the last one of the page before."""
        ...

    async def count(self, tenant: TenantId, wanted: AuditFilter) -> int:
        """Never more than `limits.LIST_COUNT_MAX`, which then means at least so many."""
        ...

    async def head(self, tenant: TenantId) -> tuple[int, str]:
        """How many links there have been, and the hash of the last one."""
        ...


class AuditLog:
    def __init__(self, links: Links, *, signing_key: Callable[[], Awaitable[tuple[str, bytes]]], clock: Clock) -> None:
        self.links = links
        self._signing_key = signing_key
        self._clock = clock

    async def checkpoint(self, tenant: TenantId) -> Checkpoint:
        """Where the chain ends now. Kept outside, it shows later whether the chain still has all of it."""
        size, head = await self.links.head(tenant)
        at = rfc3339(self._clock.now_ms())
        _, private = await self._signing_key()
        signature, key = sign(private, checkpoint_text(tenant=tenant, size=size, head=head, at=at))
        return Checkpoint(tenant=tenant, size=size, head=head, at=at, key=key, signature=signature)
