"""Lets queued executions begin when there is room: so many of a workflow, so many of a tenant, whoever owns them.

Told by the commit loop which of our executions queue and which have ended; asks `Room`, which counts over all shards
and replicas, and passes on who may begin. Holds no truth: who queues follows from the states, who has room is stored,
and asking again changes nothing. Executions without a limit never come here.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

import msgspec
import structlog

from agentflow import limits
from agentflow.clock import Clock
from agentflow.errors import Bug, Unavailable
from agentflow.execution.messages import Admitted, Stamp
from agentflow.execution.state import ExecutionState, Status
from agentflow.ids import ExecutionId, TenantId, shard_of
from control_plane.orchestrator.children import Post
from control_plane.orchestrator.inbox import Arrival

_log = structlog.get_logger(__name__)


class Entrant(msgspec.Struct, frozen=True):
    """An execution that asks for room. The higher priority goes first, and among equals whoever came first."""

    execution: ExecutionId
    tenant: TenantId
    workflow: str
    priority: int
    since_ms: int
    workflow_max: int | None
    of_tenant: bool


class Room(Protocol):
    async def admit(
        self, tenant: TenantId, entering: Sequence[Entrant], *, tenant_max: int | None
    ) -> Sequence[ExecutionId]:
        """Take down who enters, forget who has ended, give away what room there is. Durable when it returns.

        Who has room and has not begun: those who just got it, and those of whom nobody knows whether they were told.
        """
        ...


class NoLimits:
    """For deployments and tests in which nothing is limited."""

    async def admit(
        self, tenant: TenantId, entering: Sequence[Entrant], *, tenant_max: int | None
    ) -> Sequence[ExecutionId]:
        return [entrant.execution for entrant in entering]


class Admission:
    def __init__(
        self,
        *,
        room: Room,
        tenant_max: Callable[[TenantId], int | None],
        post: Post,
        clock: Clock,
        stamp: Callable[[], Stamp],
        shards: int,
    ) -> None:
        self._room = room
        self._tenant_max = tenant_max
        self._post = post
        self._clock = clock
        self._stamp = stamp
        self._shards = shards
        self._outside: dict[ExecutionId, tuple[int, Entrant]] = {}  # not entered yet, and from when on they may
        self._inside: dict[ExecutionId, TenantId] = {}  # entered, and not seen to begin
        self._asking: set[TenantId] = set()
        self._news = asyncio.Event()

    def moved(self, state: ExecutionState) -> None:
        """An execution with a limit was committed or taken up."""
        queue = state.queue
        if queue is None or state.workflow is None:
            raise Bug(f"Execution {state.execution} has no limit to wait for.")
        if state.status is Status.QUEUED:
            entrant = Entrant(
                state.execution, state.tenant, state.workflow.name, state.priority,
                max(state.begun_at_ms, queue.not_before_ms or 0), queue.workflow_max, queue.of_tenant,
            )  # fmt: skip
            if state.execution not in self._inside:
                self._outside[state.execution] = (queue.not_before_ms or 0, entrant)
                self._ask(state.tenant)
            return
        self._outside.pop(state.execution, None)
        self._inside.pop(state.execution, None)
        if state.ended:
            self._ask(state.tenant)  # there is room again

    def let_go(self, shards: Collection[int]) -> None:
        known: Mapping[ExecutionId, object]
        for known in (self._outside, self._inside):
            for execution in [one for one in known if shard_of(one, self._shards) in shards]:
                self._outside.pop(execution, None)
                self._inside.pop(execution, None)

    async def run(self) -> None:
        """Ask at once when something changed, and again now and then while somebody waits: a word may be lost."""
        asked_s = self._clock.monotonic_s()
        while True:
            if self._asking:
                await self._turn()
            nap_s = limits.SWEEP_S if self._outside or self._inside else None
            try:
                async with asyncio.timeout(nap_s):
                    await self._news.wait()
            except TimeoutError:
                now = self._clock.now_ms()
                self._asking |= {entrant.tenant for at_ms, entrant in self._outside.values() if at_ms <= now}
                if self._clock.monotonic_s() - asked_s >= limits.ADMIT_AGAIN_S:
                    asked_s = self._clock.monotonic_s()
                    self._asking |= set(self._inside.values())
            self._news.clear()

    def _ask(self, tenant: TenantId) -> None:
        self._asking.add(tenant)
        self._news.set()

    async def _turn(self) -> None:
        asking, self._asking = self._asking, set()
        now = self._clock.now_ms()
        for tenant in sorted(asking):
            entering = [one for at_ms, one in self._outside.values() if one.tenant == tenant and at_ms <= now]
            entering = entering[: limits.ADMIT_AT_ONCE]
            try:
                admitted = await self._room.admit(tenant, entering, tenant_max=self._tenant_max(tenant))
            except Unavailable as error:
                _log.warning("admission.postponed", tenant=tenant, reason=error.message)
                continue  # those who wait bring it up again
            for entrant in entering:
                if self._outside.pop(entrant.execution, None) is not None:
                    self._inside[entrant.execution] = tenant
            for execution in admitted:
                arrival = Arrival(execution, Admitted(self._stamp()), lambda _: None, lambda _: None)
                self._post(tenant, arrival)
            if len(entering) == limits.ADMIT_AT_ONCE or len(admitted) == limits.ADMIT_AT_ONCE:
                self._ask(tenant)
