"""Where a message is decided: here, or on the replica that owns its execution's shard.

Callers are told once it is committed, wherever that was. While a shard changes hands the message follows it; what may
have been sent before is sent again, because every message changes nothing the second time.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress

from agentflow import limits
from agentflow.artifacts.claim_check import ClaimCheck
from agentflow.bus import subjects
from agentflow.clock import Clock
from agentflow.contracts.audit import AuditEntry
from agentflow.errors import AgentFlowError
from agentflow.execution.messages import Beginning, ExecutionMessage, Stamp
from agentflow.execution.state import ExecutionState
from agentflow.ids import ExecutionId, TenantId, shard_of
from agentflow.ports import BusUnavailable, MessageBus, ShardLost, Shelf
from control_plane.audit import notes
from control_plane.orchestrator import relay
from control_plane.orchestrator.inbox import Arrival, Inbox
from control_plane.orchestrator.watchers import Wanted

_LOOK_AGAIN_S = 1.0


class Routing:
    def __init__(
        self,
        *,
        inbox: Inbox,
        bus: MessageBus,
        clock: Clock,
        stamp: Callable[[], Stamp],
        state: Callable[[TenantId, ExecutionId], Awaitable[ExecutionState]],
        owned: Mapping[int, int],
        shards: int,
        claims: ClaimCheck | None = None,
    ) -> None:
        self._inbox = inbox
        self._bus = bus
        self._clock = clock
        self._stamp = stamp
        self._state = state
        self._owned = owned
        self._shards = shards
        self._claims = claims
        self._hops: set[asyncio.Task[None]] = set()

    def stop(self) -> None:
        for hop in self._hops:
            hop.cancel()

    async def wait_elsewhere(
        self, tenant: TenantId, execution: ExecutionId, wanted: Wanted, deadline_s: float
    ) -> ExecutionState:
        """The first committed state of another replica's execution that is wanted; its feed says when to look."""
        moved = asyncio.Event()

        def heard(raw: bytes) -> None:
            if execution.encode() in raw:
                moved.set()

        listening = await self._bus.listen(subjects.shard_feed(shard_of(execution, self._shards)), heard)
        try:
            while not wanted(state := await self._state(tenant, execution)):
                left_s = deadline_s - self._clock.monotonic_s()
                if left_s <= 0:
                    break
                with suppress(TimeoutError):
                    async with asyncio.timeout(min(left_s, _LOOK_AGAIN_S)):  # a feed may lose a message
                        await moved.wait()
                moved.clear()
        finally:
            await listening.stop()
        return state

    async def committed(
        self,
        tenant: TenantId,
        execution: ExecutionId,
        message: ExecutionMessage,
        *,
        again: bool = False,
        only_at: int | None = None,
    ) -> ExecutionState:
        """The state once the message is durable, wherever its shard is. Follows the shard while it changes hands."""
        deadline_s = self._clock.monotonic_s() + limits.HOP_S
        notes.concerning("execution", execution)
        audit = notes.due()
        sent = again
        while True:
            try:
                if self.is_ours(execution):
                    return await self._committed_here(
                        tenant, execution, message, again=sent, only_at=only_at, audit=audit
                    )
                sent = True
                return await self._committed_elsewhere(tenant, execution, message, only_at, audit)
            except (ShardLost, BusUnavailable):
                if self._clock.monotonic_s() > deadline_s:
                    raise
                await self._clock.sleep(_LOOK_AGAIN_S / 4)

    async def _committed_here(
        self,
        tenant: TenantId,
        execution: ExecutionId,
        message: ExecutionMessage,
        *,
        again: bool,
        only_at: int | None = None,
        audit: AuditEntry | None = None,
    ) -> ExecutionState:
        committed, arrival = self._awaited(execution, message, again=again, only_at=only_at, audit=audit)
        if isinstance(message, Beginning):
            self._inbox.admit(tenant, arrival, priority=message.priority)
        else:
            self._inbox.put(arrival)
        return await committed

    async def _committed_elsewhere(
        self,
        tenant: TenantId,
        execution: ExecutionId,
        message: ExecutionMessage,
        only_at: int | None,
        audit: AuditEntry | None,
    ) -> ExecutionState:
        """Whether its audit record was committed there is not told: who asked writes it again, and it counts once."""
        if self._claims is not None:  # a message of the bus has a bound, and what people send has none
            message = await self._claims.checked_fields(Shelf(tenant, execution), message)
        question = relay.order(tenant, execution, message, only_at, audit)
        shard = shard_of(execution, self._shards)
        relay.read_answer(await self._bus.request(relay.subject(shard), question, within_s=limits.HOP_S), shard)
        return await self._state(tenant, execution)

    async def answer(self, raw: bytes) -> bytes:
        """What another replica was asked, about an execution of ours."""
        asked = relay.read_order(raw)
        try:
            if not self.is_ours(asked.execution):
                raise ShardLost([shard_of(asked.execution, self._shards)])
            message = relay.message_of(asked, self._stamp())
            await self._committed_here(
                asked.tenant, asked.execution, message, again=True, only_at=asked.only_at, audit=asked.audit
            )
        except AgentFlowError as error:
            return relay.refused(error)
        return relay.taken(asked.execution)

    def post(self, tenant: TenantId, arrival: Arrival) -> None:
        """Put a message where its execution is decided; its sender is told what became of it."""
        if self.is_ours(arrival.execution):
            self._inbox.put(arrival)
            return

        async def hop() -> None:
            try:
                arrival.settled(await self.committed(tenant, arrival.execution, arrival.message))
            except AgentFlowError as error:
                arrival.refused(error)

        task = asyncio.create_task(hop(), name=f"hop {arrival.execution}")
        self._hops.add(task)
        task.add_done_callback(self._hops.discard)

    def is_ours(self, execution: ExecutionId) -> bool:
        return shard_of(execution, self._shards) in self._owned

    def _awaited(
        self,
        execution: ExecutionId,
        message: ExecutionMessage,
        *,
        again: bool,
        only_at: int | None,
        audit: AuditEntry | None,
    ) -> tuple[asyncio.Future[ExecutionState], Arrival]:
        committed: asyncio.Future[ExecutionState] = asyncio.get_running_loop().create_future()

        def settled(state: ExecutionState) -> None:
            if not committed.done():
                committed.set_result(state)

        def refused(error: AgentFlowError) -> None:
            if not committed.done():
                committed.set_exception(error)

        return committed, Arrival(execution, message, settled, refused, again, only_at, audit=audit)
