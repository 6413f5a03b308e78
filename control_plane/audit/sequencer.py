"""Moves what was recorded into its tenant's chain, in batches: one at a time for a tenant, over all control planes.

The fence is the head of the chain itself: the transaction that adds links holds its row and moves it on, so of two
sequencers one waits its turn or leaves, and one that is killed half way has added nothing. No record is on the path of
a request here; a record waits for its link for a fraction of a second.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Protocol

import structlog

from agentflow.clock import Clock
from agentflow.errors import AgentFlowError
from agentflow.ids import TenantId
from agentflow.limits import AUDIT_BATCH_MAX, AUDIT_LOOK_S, AUDIT_SEQUENCE_S

_log = structlog.get_logger(__name__)


class ChainStore(Protocol):
    async def waiting(self) -> Sequence[TenantId]:
        """Whose records have no place yet."""
        ...

    async def chain(self, tenant: TenantId, *, limit: int) -> int:
        """Add at most so many of a tenant's records to its chain: how many were looked at. None where another does."""
        ...


class Sequencer:
    def __init__(self, store: ChainStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._woken: set[TenantId] = set()
        self._awake = asyncio.Event()

    def wake(self, tenant: TenantId) -> None:
        self._woken.add(tenant)
        self._awake.set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as group:
            loop = group.create_task(self._run(), name="audit sequencer")
            try:
                yield
            finally:
                loop.cancel()

    async def _run(self) -> None:
        looked_at_s = -AUDIT_LOOK_S
        while True:
            try:
                if self._clock.monotonic_s() - looked_at_s >= AUDIT_LOOK_S:
                    # Records that another control plane left behind without a word, or we before a restart.
                    looked_at_s = self._clock.monotonic_s()
                    self._woken.update(await self._store.waiting())
                await self._chain_woken()
            except AgentFlowError as error:
                _log.warning("audit.not_sequenced", reason=error.message)
            with suppress(TimeoutError):
                async with asyncio.timeout(AUDIT_LOOK_S):
                    await self._awake.wait()
            await self._clock.sleep(AUDIT_SEQUENCE_S)  # what comes together is chained together

    async def _chain_woken(self) -> None:
        self._awake.clear()
        while self._woken:
            tenant = self._woken.pop()
            try:
                while await self._store.chain(tenant, limit=AUDIT_BATCH_MAX) == AUDIT_BATCH_MAX:
                    pass
            except AgentFlowError:
                self.wake(tenant)
                raise
