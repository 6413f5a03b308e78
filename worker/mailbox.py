"""One agent's steps, from delivery to ack: run each once, keep it ours while it runs, report, and only then ack.

Fed by the bus, and by the control plane with its answer to what was handed over; makes an `Agent` work, hands
`report`s to the `reporter`. Counts no attempts and retries no step: a fault is a result like any other, and what
follows from it is the control plane's to decide. A step that comes a second time was lost with another worker: that is
reported instead of run, so the control plane can count it, fence the late worker and begin the next attempt.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Any

import msgspec
import structlog

from agentflow import limits
from agentflow.bus import subjects
from agentflow.clock import Clock
from agentflow.contracts.claims import Claim
from agentflow.contracts.message import Message
from agentflow.contracts.step import (
    STEP_CANCELLED,
    WORKER_LOST,
    WORKER_STOPPED,
    CancelSteps,
    HeldStep,
    StepFault,
    StepRequest,
)
from agentflow.contracts.usage import Usage
from agentflow.contracts.workspace import WorkspaceLeft
from agentflow.ids import DEFAULT_TENANT, AgentName, ExecutionId, StepPath, TenantId, UlidSource, WorkerId
from agentflow.ports import Delivery, MessageBus, Subscription
from worker.agents.agent import Agent, Cancellation, Starts, StepContext
from worker.large_values import LargeValues
from worker.outcome import fault_of
from worker.report import Ending, dedup_id, report
from worker.reporter import Reporter

_FAULT_OF_OURS_DELAY_S = 5.0
_SIGNS_PER_ACK_WAIT = 3  # so that one lost sign of work does not lose the step
_CANCELLED_REMEMBERED_MAX = 10_000
_GOODBYE_S = 2.0

_Key = tuple[ExecutionId, StepPath, int]

log = structlog.get_logger(__name__)


class _Held:
    """A step that is here, and every delivery of it: JetStream hears an ack only from the newest one."""

    __slots__ = (
        "cancellation", "dedup_id", "deliveries", "has_begun", "is_done", "key", "left", "request", "task", "usage",
    )  # fmt: skip

    def __init__(self, key: _Key, request: StepRequest, delivery: Delivery) -> None:
        self.key = key
        self.request = request
        self.dedup_id = dedup_id(request)
        self.deliveries = [delivery]
        self.cancellation = Cancellation()
        self.has_begun = False  # a task that is cancelled before its first line would never say so
        self.is_done = False  # the agent has answered; what is left is to say so
        self.task: asyncio.Task[None] | None = None
        self.usage: list[Usage] = []  # what its agent says it has spent so far
        self.left: list[WorkspaceLeft] = []  # what its call has left in the workspace

    def cancel(self, reason: str) -> None:
        self.cancellation.set(reason)
        if self.task is not None and self.has_begun:
            self.task.cancel()


class _Given:
    """A step that came with the answer to a result. Nobody but its control plane knows of it, who hears of its end."""

    __slots__ = ("message", "pool")

    deliveries = 1

    def __init__(self, message: Message, pool: str) -> None:
        self.message = message
        self.pool = pool

    def ack(self) -> None: ...

    def nak(self, delay_s: float = 0.0) -> None: ...

    def working(self) -> None: ...


class Mailbox:
    def __init__(
        self,
        name: AgentName,
        agent: Agent,
        *,
        pool: str,
        concurrency: int,
        ack_wait_s: float,
        bus: MessageBus,
        reporter: Reporter,
        worker: WorkerId,
        ids: UlidSource,
        clock: Clock,
        spool_first: bool = False,
        values: LargeValues | None = None,
    ) -> None:
        self.name = name
        self._pool = pool
        self._reporter = reporter
        self._spool_first = spool_first
        self._agent = agent
        self._concurrency = concurrency
        self._ack_wait_s = ack_wait_s
        self._bus = bus
        self._worker = worker
        self._ids = ids
        self._clock = clock
        self._values = values
        self._held: dict[_Key, _Held] = {}
        self._waiting: deque[_Held] = deque()
        self._cancelled: dict[tuple[ExecutionId, StepPath | None], CancelSteps] = {}
        self._running = 0
        self._is_leaving = False
        self._takes = True
        self._offered = 0  # slots that are kept free for steps that may come with an answer
        self._ended = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._subscription: Subscription | None = None
        self._signs: asyncio.Task[None] | None = None

    @property
    def running(self) -> int:
        return self._running

    @property
    def held(self) -> list[HeldStep]:
        return [HeldStep(*key) for key in self._held]

    def cancel(self, order: CancelSteps) -> int:
        """End what is meant, and remember it for what is still on its way here. Returns how many were ended."""
        self._cancelled[order.execution_id, order.path] = order
        if len(self._cancelled) > _CANCELLED_REMEMBERED_MAX:
            del self._cancelled[next(iter(self._cancelled))]
        ended = 0
        for held in self._held.values():
            if not held.is_done and _is_meant(order, held.request):
                held.cancel(order.reason)
                ended += 1
        return ended

    async def start(self) -> None:
        if isinstance(self._agent, Starts):
            try:
                await self._agent.start()
            except Exception:
                log.exception("agent.not_started", agent=self.name)  # its steps will say so too
        consumer = subjects.agent_mailbox(
            self._pool, self.name, concurrency=self._concurrency, ack_wait_s=self._ack_wait_s
        )
        self._signs = asyncio.create_task(self._give_signs(), name=f"signs of {self.name}")
        self._subscription = await self._bus.subscribe(consumer, self._delivered)

    async def stop_taking(self) -> None:
        """Ask for no more, and report what has not begun as ours no longer: another worker may have a free slot."""
        self._takes = False
        if self._subscription is not None:
            await self._subscription.stop()
        await self._let_waiting_go()

    async def wait_idle(self) -> None:
        await self._idle.wait()

    async def close(self) -> None:
        """Cancel what still runs and say so, so that another worker takes it at once; then let the agent go."""
        self._is_leaving = True
        for held in self._held.values():
            if not held.is_done:
                held.cancel("the worker stops")
        await self._let_waiting_go()
        tasks = [held.task for held in self._held.values() if held.task is not None]
        if tasks:
            # What is already an answer, or says that it is none, may take a moment to reach the bus; not longer.
            await asyncio.wait(tasks, timeout=_GOODBYE_S)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._signs is not None:
            self._signs.cancel()
            await asyncio.gather(self._signs, return_exceptions=True)
        await self._agent.close()

    def offer(self, most: int) -> int:
        """Only of what would stay free: then nothing waits in the mailbox that these steps would overtake."""
        by_mailbox = (self._ended + most) // limits.STEPS_BACK_RUN - self._ended // limits.STEPS_BACK_RUN
        self._ended += most
        free = self._concurrency - self._running - len(self._waiting) - self._offered if self._takes else 0
        offered = max(0, min(most - by_mailbox, free))
        self._offered += offered
        return offered

    def given(self, steps: Sequence[Message], *, offered: int) -> None:
        self._offered -= offered
        for message in steps:
            self._delivered(_Given(message, self._pool))

    def _delivered(self, delivery: Delivery) -> None:
        try:
            request = delivery.message.read(StepRequest)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            # Nobody can be told, and it will never read better: keeping it would only bring it back for ever.
            log.warning("step.unreadable", agent=self.name, message=delivery.message.id, reason=str(error))
            delivery.ack()
            return
        key = (request.execution_id, request.path, request.attempt)
        held = self._held.get(key)
        if held is not None:
            held.deliveries.append(delivery)
            return
        held = self._held[key] = _Held(key, request, delivery)
        if self._reporter.has(held.dedup_id):
            held.is_done = True
            held.task = asyncio.create_task(self._see_sent(held))
        elif delivery.deliveries > 1 or request.again:
            held.is_done = True
            held.task = asyncio.create_task(self._tell(held, _UNHEARD if request.again else _lost(delivery.deliveries)))
        elif not self._takes:
            held.is_done = True
            held.task = asyncio.create_task(self._tell(held, _STOPPED))
        elif self._running < self._concurrency:
            self._begin(held)
        else:
            self._waiting.append(held)

    async def _let_waiting_go(self) -> None:
        waiting = [self._waiting.popleft() for _ in range(len(self._waiting))]
        for held in waiting:
            held.is_done = True
            held.task = asyncio.create_task(self._tell(held, _STOPPED))
        if waiting:
            await asyncio.wait([held.task for held in waiting if held.task], timeout=_GOODBYE_S)

    def _begin(self, held: _Held) -> None:
        self._running += 1
        self._idle.clear()
        held.task = asyncio.create_task(self._see_through(held))

    async def _see_through(self, held: _Held) -> None:
        request = held.request
        held.has_begun = True
        try:
            ending = await self._ending(held)
            held.is_done = True
            await self._report(held, ending)
        except asyncio.CancelledError:
            raise  # un-acked: the result is spooled, or another worker finds the step lost
        except Exception:
            # A fault of ours: no agent's exception gets this far. Another try may go better, but not at once.
            log.exception("step.unreported", execution=request.execution_id, step=request.path)
            _give_back(held, delay_s=_FAULT_OF_OURS_DELAY_S)
        else:
            for delivery in held.deliveries:
                delivery.ack()
        finally:
            del self._held[held.key]
            self._running -= 1
            if self._waiting and not self._is_leaving:
                self._begin(self._waiting.popleft())
            elif not self._running:
                self._idle.set()

    async def _see_sent(self, held: _Held) -> None:
        """It was finished here before, perhaps by a process that is gone; but whoever asks does not know that yet."""
        if not await self._reporter.send_again(held.dedup_id):
            await self._tell(held, _FORGOTTEN)
            return
        for delivery in held.deliveries:
            delivery.ack()
        del self._held[held.key]

    async def _tell(self, held: _Held, fault: StepFault) -> None:
        """Report a step that is not run here."""
        request = held.request
        log.warning(
            "step.not_run",
            execution=request.execution_id,
            step=request.path,
            attempt=request.attempt,
            agent=self.name,
            code=fault.code,
        )
        now_ms = self._clock.now_ms()
        try:
            await self._report(held, Ending(now_ms, now_ms, fault=fault))
            for delivery in held.deliveries:
                delivery.ack()
        finally:
            del self._held[held.key]

    async def _report(self, held: _Held, ending: Ending) -> None:
        request = held.request
        message = report(
            id=self._ids.message(),
            asked=held.deliveries[0].message,
            request=request,
            ending=ending,
            agent=self.name,
            worker=self._worker,
        )
        subject = subjects.workflow_in(request.workflow, request.shard, self._pool)
        owner = None if request.owner is None else subjects.of_pool(subjects.direct_results(request.owner), self._pool)
        await self._reporter.send(
            subject, message, held.dedup_id, owner=owner, desk=self, spool_first=self._spool_first
        )

    async def _ending(self, held: _Held) -> Ending:
        request = held.request
        started_at_ms = self._clock.now_ms()
        output, fault = await self._outcome(held, started_at_ms)
        if fault is not None:
            log.info(
                "step.failed",
                execution=request.execution_id,
                step=request.path,
                attempt=request.attempt,
                agent=self.name,
                code=fault.code,
                reason=fault.message,
            )
        claim = output if isinstance(output, Claim) else None
        return Ending(
            started_at_ms,
            self._clock.now_ms(),
            None if claim is not None else output,
            fault,
            claim,
            usage=tuple(held.usage),
            workspace=held.left[-1] if held.left else None,
        )

    async def _outcome(self, held: _Held, started_at_ms: int) -> tuple[Any, StepFault | None]:
        request = held.request
        if held.cancellation.is_set:
            return None, self._given_up(held)
        if self._cancelled and (order := self._cancelled_before(request)) is not None:
            return None, StepFault(STEP_CANCELLED, order.reason)
        timeout_s = request.timeout_ms / 1000
        context = StepContext(
            execution_id=request.execution_id,
            step=request.name,
            attempt=request.attempt,
            effect_key=request.effect_key,
            deadline_ms=started_at_ms + request.timeout_ms,
            tenant=TenantId(held.deliveries[0].message.metadata.get("tenant_id") or DEFAULT_TENANT),
            cancellation=held.cancellation,
            ends_at_s=self._clock.monotonic_s() + timeout_s,
            clock=self._clock,
            trace_id=held.deliveries[0].message.trace_id,
            usage=held.usage,
            left=held.left,
        )
        deadline = asyncio.timeout(timeout_s)
        try:
            async with deadline:
                if self._values is None:
                    return await self._agent.run(request, context), None
                output = await self._agent.run(await self._values.whole(request, held.deliveries[0].message), context)
                return await self._values.claimed(request, held.deliveries[0].message, output), None
        except asyncio.CancelledError as error:
            if not _is_cancelled():
                return None, fault_of(error)  # something inside the agent was cancelled, not the step
            if not context.cancelled:
                raise
            _uncancel()
            return None, self._given_up(held)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever an agent raises is the step's outcome
            if deadline.expired():
                held.cancellation.set("timeout")  # for a thread that nobody can stop
                late = f"The agent did not answer within {request.timeout_ms} ms."
                return None, StepFault("timeout", late, retryable=True)
            return None, fault_of(error)

    def _given_up(self, held: _Held) -> StepFault:
        return _STOPPED if self._is_leaving else StepFault(STEP_CANCELLED, held.cancellation.reason)

    def _cancelled_before(self, request: StepRequest) -> CancelSteps | None:
        for path in (request.path, None):
            order = self._cancelled.get((request.execution_id, path))
            if order is not None and _is_meant(order, request):
                return order
        return None

    async def _give_signs(self) -> None:
        while True:
            await self._clock.sleep(self._ack_wait_s / _SIGNS_PER_ACK_WAIT)
            for held in self._held.values():
                held.deliveries[-1].working()


def _give_back(held: _Held, delay_s: float = 0.0) -> None:
    for delivery in held.deliveries:
        delivery.nak(delay_s)


_FORGOTTEN = StepFault(WORKER_LOST, "The result of this step was lost on its way.", retryable=True)
_UNHEARD = StepFault(WORKER_LOST, "The worker that may have this step is not heard.", retryable=True)
_STOPPED = StepFault(WORKER_STOPPED, "The worker stopped before the step had ended.", retryable=True)


def _lost(deliveries: int) -> StepFault:
    words = f"The worker that had this step fell silent (delivery {deliveries})."
    return StepFault(WORKER_LOST, words, retryable=True)


def _is_meant(order: CancelSteps, request: StepRequest) -> bool:
    return (
        order.execution_id == request.execution_id
        and order.path in (None, request.path)
        and (order.attempt is None or request.attempt <= order.attempt)
    )


def _uncancel() -> None:
    task = asyncio.current_task()
    while task is not None and task.cancelling():
        task.uncancel()


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
