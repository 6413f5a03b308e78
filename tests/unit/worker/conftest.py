"""The worker's logic without a server: a bus that is a list, and requests as the control plane would send them."""

from collections.abc import Callable

import msgspec
import pytest

from agentflow.clock import SystemClock
from agentflow.contracts.message import Message, decode, encode, seal
from agentflow.contracts.step import StepRequest, StepResult
from agentflow.ids import UlidSource
from agentflow.ports import BusUnavailable, Consumer


class HandedOut:
    def __init__(self, message: Message, story: list[str]) -> None:
        self.message = message
        self.deliveries = 1
        self.signs = 0
        self.verdicts: list[str] = []
        self._story = story

    def ack(self) -> None:
        self.verdicts.append("ack")
        self._story.append("ack")

    def nak(self, delay_s: float = 0.0) -> None:
        self.verdicts.append("nak")
        self._story.append("nak")

    def working(self) -> None:
        self.signs += 1


class Stopping:
    def __init__(self, story: list[str]) -> None:
        self._story = story

    async def stop(self) -> None:
        self._story.append("stop")


class MemoryBus:
    """Hands deliveries to the one subscriber and keeps what is published; `away` makes publishing fail that often."""

    def __init__(self) -> None:
        self.story: list[str] = []
        self.published: list[tuple[str, Message, str]] = []
        self.away = 0
        self.refusal: Exception | None = None
        self.consumer: Consumer | None = None
        self._handler: Callable | None = None

    async def subscribe(self, consumer: Consumer, handler: Callable) -> Stopping:
        self.consumer = consumer
        self._handler = handler
        return Stopping(self.story)

    async def publish(self, subject: str, message: Message, *, dedup_id: str, confirm: bool) -> None:
        if self.refusal is not None:
            raise self.refusal
        if self.away:
            self.away -= 1
            raise BusUnavailable("away for a test")
        assert confirm
        self.story.append("publish")
        self.published.append((subject, decode(encode(message)), dedup_id))

    def deliver(self, message: Message, *, deliveries: int = 1) -> HandedOut:
        delivery = HandedOut(message, self.story)
        delivery.deliveries = deliveries
        self._handler(delivery)
        return delivery

    @property
    def results(self) -> list[StepResult]:
        return [message.read(StepResult) for _, message, _ in self.published]


@pytest.fixture
def bus() -> MemoryBus:
    return MemoryBus()


@pytest.fixture
def ids() -> UlidSource:
    return UlidSource(SystemClock().now_ms)


@pytest.fixture
def asked(ids) -> Callable[..., Message]:
    """A sealed request for a step; keyword arguments change the request."""

    def make(**changes) -> Message:
        fields = {
            "execution_id": "exec_1",
            "workflow": "support",
            "shard": 3,
            "path": "classify",
            "name": "classify",
            "attempt": 1,
            "input": {"text": "hello"},
            "timeout_ms": 30_000,
            "effect_key": "default/exec_1/classify",
        }
        request = StepRequest(**(fields | changes))
        return seal(
            id=ids.message(),
            trace_id=ids.trace(),
            span_id="00f067aa0ba902b7",
            sender="orchestrator",
            to="classifier",
            type="request",
            payload=msgspec.to_builtins(request),
            metadata={"execution_id": request.execution_id},
            at_ms=1_700_000_000_000,
        )

    return make
