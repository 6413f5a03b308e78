"""One agent's steps, from delivery to ack: run each once, keep it ours while it runs, report, and only then ack.

Fed by the bus, makes an `Agent` work, publishes `report`s. Counts no attempts and retries no step: a fault is a
result like any other, and what follows from it is the control plane's to decide.
"""

import asyncio
from collections import deque
from typing import Any

import msgspec
import structlog

from agentflow.bus import subjects
from agentflow.clock import Clock
from agentflow.contracts.message import Message
from agentflow.contracts.step import StepFault, StepRequest
from agentflow.errors import Rejected
from agentflow.ids import AgentName, ExecutionId, StepPath, UlidSource, WorkerId
from agentflow.ports import BusUnavailable, Delivery, MessageBus, Subscription
from worker.agents.agent import Agent, StepContext
from worker.outcome import fault_of
from worker.report import Ending, dedup_id, report

_PUBLISH_PAUSE_S_FIRST = 0.1
_PUBLISH_PAUSE_S_MAX = 5.0
_FAULT_OF_OURS_DELAY_S = 5.0
_SIGNS_PER_ACK_WAIT = 3  # so that one lost sign of work does not lose the step

_Key = tuple[ExecutionId, StepPath, int]

log = structlog.get_logger(__name__)


class _Held:
    """A step that is here, and every delivery of it: JetStream hears an ack only from the newest one."""

    __slots__ = ("deliveries", "key", "request", "task")

    def __init__(self, key: _Key, request: StepRequest, delivery: Delivery) -> None:
        self.key = key
        self.request = request
        self.deliveries = [delivery]
        self.task: asyncio.Task[None] | None = None


class Mailbox:
    def __init__(
        self,
        name: AgentName,
        agent: Agent,
        *,
        concurrency: int,
        ack_wait_s: float,
        bus: MessageBus,
        worker: WorkerId,
        ids: UlidSource,
        clock: Clock,
    ) -> None:
        self.name = name
        self._agent = agent
        self._concurrency = concurrency
        self._ack_wait_s = ack_wait_s
        self._bus = bus
        self._worker = worker
        self._ids = ids
        self._clock = clock
        self._held: dict[_Key, _Held] = {}
        self._waiting: deque[_Held] = deque()
        self._running = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._subscription: Subscription | None = None
        self._signs: asyncio.Task[None] | None = None

    @property
    def running(self) -> int:
        return self._running

    async def start(self) -> None:
        consumer = subjects.agent_mailbox(self.name, concurrency=self._concurrency, ack_wait_s=self._ack_wait_s)
        self._signs = asyncio.create_task(self._give_signs(), name=f"signs of {self.name}")
        self._subscription = await self._bus.subscribe(consumer, self._delivered)

    async def stop_taking(self) -> None:
        """Ask for no more, and give back what has not begun: another worker may have a free slot."""
        if self._subscription is not None:
            await self._subscription.stop()
        self._give_back_waiting()

    async def wait_idle(self) -> None:
        await self._idle.wait()

    async def close(self) -> None:
        """Cancel what still runs, un-acked, so that another worker takes it; then let the agent go."""
        self._give_back_waiting()
        tasks = [held.task for held in self._held.values() if held.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for held in self._held.values():
            _give_back(held)  # cancelled before it had begun, so it could not do so itself
        if self._signs is not None:
            self._signs.cancel()
            await asyncio.gather(self._signs, return_exceptions=True)
        await self._agent.close()

    def _delivered(self, delivery: Delivery) -> None:
        try:
            request = msgspec.convert(delivery.message.payload, StepRequest)
        except msgspec.ValidationError as error:
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
        if self._running < self._concurrency:
            self._begin(held)
        else:
            self._waiting.append(held)

    def _give_back_waiting(self) -> None:
        while self._waiting:
            held = self._waiting.popleft()
            del self._held[held.key]
            _give_back(held)

    def _begin(self, held: _Held) -> None:
        self._running += 1
        self._idle.clear()
        held.task = asyncio.create_task(self._see_through(held))

    async def _see_through(self, held: _Held) -> None:
        request = held.request
        try:
            ending = await self._ending(request)
            message = report(
                id=self._ids.message(),
                asked=held.deliveries[0].message,
                request=request,
                ending=ending,
                agent=self.name,
                worker=self._worker,
            )
            await self._publish(request, message)
        except asyncio.CancelledError:
            _give_back(held)
            raise
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
            if self._waiting:
                self._begin(self._waiting.popleft())
            elif not self._running:
                self._idle.set()

    async def _ending(self, request: StepRequest) -> Ending:
        started_at_ms = self._clock.now_ms()
        output, fault = await self._outcome(request, started_at_ms)
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
        return Ending(started_at_ms, self._clock.now_ms(), output, fault)

    async def _outcome(self, request: StepRequest, started_at_ms: int) -> tuple[Any, StepFault | None]:
        context = StepContext(
            execution_id=request.execution_id,
            step=request.name,
            attempt=request.attempt,
            effect_key=request.effect_key,
            deadline_ms=started_at_ms + request.timeout_ms,
        )
        deadline = asyncio.timeout(request.timeout_ms / 1000)
        try:
            async with deadline:
                return await self._agent.run(request, context), None
        except asyncio.CancelledError as error:
            if _is_cancelled():
                raise
            return None, fault_of(error)  # something inside the agent was cancelled, not the step
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever an agent raises is the step's outcome
            if deadline.expired():
                late = f"The agent did not answer within {request.timeout_ms} ms."
                return None, StepFault("timeout", late, retryable=True)
            return None, fault_of(error)

    async def _publish(self, request: StepRequest, message: Message) -> None:
        """Until the stream has it. Meanwhile the result lives here, and the step stays ours by its signs of work."""
        pause_s = _PUBLISH_PAUSE_S_FIRST
        while True:
            try:
                subject = subjects.workflow_in(request.workflow, request.shard)
                await self._bus.publish(subject, message, dedup_id=dedup_id(request), confirm=True)
            except BusUnavailable as error:
                log.warning(
                    "result.kept",
                    execution=request.execution_id,
                    step=request.path,
                    attempt=request.attempt,
                    reason=error.message,
                    again_in_s=pause_s,
                )
                await self._clock.sleep(pause_s)
                pause_s = min(pause_s * 2, _PUBLISH_PAUSE_S_MAX)
            except Rejected:
                # No bus will ever take it. The control plane's timeout ends the step; this says why.
                log.exception("result.unpublishable", execution=request.execution_id, step=request.path)
                return
            else:
                return

    async def _give_signs(self) -> None:
        while True:
            await self._clock.sleep(self._ack_wait_s / _SIGNS_PER_ACK_WAIT)
            for held in self._held.values():
                held.deliveries[-1].working()


def _give_back(held: _Held, delay_s: float = 0.0) -> None:
    for delivery in held.deliveries:
        delivery.nak(delay_s)


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
