"""Those who use the platform: they start, signal, pause, cancel, answer and retry, and note what they were told.

A request without an answer is unknown to them, never failed; most of them then ask again, somewhere else, under the
same key.
"""

from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any

from agentflow.errors import AgentFlowError
from agentflow.execution import messages as m
from agentflow.execution.messages import Stamp
from agentflow.execution.state import ExecutionState, Status
from agentflow.ids import ExecutionId, StepPath, TenantId
from agentflow.ports import ShardLost
from control_plane.orchestrator.orchestrator import (
    ExecutionEnded,
    ExecutionNotFound,
    NotBegun,
    NotFailed,
    TaskNotOpen,
)
from control_plane.service import ControlPlane, KeyReused
from tests.invariants.history import Asked, Kind
from tests.simulation.model.programs import NAMES

if TYPE_CHECKING:
    from tests.simulation.model.day import Day

TENANT = TenantId("acme")
PATIENCE_S = 12.0
TRIES = 6
_FAIR = (ExecutionEnded, ExecutionNotFound, NotBegun, NotFailed, TaskNotOpen, KeyReused)

Call = Callable[[ControlPlane], Awaitable[ExecutionState]]


class Unknown(Exception):
    """Nobody answered."""


class Clients:
    def __init__(self, day: "Day") -> None:
        self._day = day
        self._chance = day.chance
        self.asked: list[Asked] = []
        self.known: list[ExecutionId] = []
        self.surprises: list[str] = []
        self._busy = 0

    @property
    def are_done(self) -> bool:
        return self._busy == 0

    def plan(self, until_s: float) -> None:
        for number in range(self._chance.randint(1, 4)):
            self._at(self._chance.random() * until_s * 0.6, self._start(number))
        for number in range(self._chance.randint(0, 6)):
            self._at(0.3 + self._chance.random() * until_s, self._meddle(number))

    def _at(self, when_s: float, what: Coroutine[Any, Any, None]) -> None:
        self._busy += 1

        async def do() -> None:
            try:
                await what
            finally:
                self._busy -= 1

        self._day.loop.outside(lambda: self._day.loop.create_task(do()), after_s=when_s)

    async def _start(self, number: int) -> None:
        reference, body = self._chance.choice(NAMES), {"n": self._chance.randint(0, 6)}
        key = f"key-{number}" if self._chance.random() < 0.7 else None

        def start(service: ControlPlane) -> Awaitable[ExecutionState]:
            return service.execute(TENANT, reference, body, key=key)

        for _ in range(TRIES if key else 1):
            state = await self._ask("start", start, key=key, body={"workflow": reference, "input": body})
            if state is not None:
                self.known.append(state.execution)
            if state is not None and self._chance.random() < 0.7:
                break
        if key and self._chance.random() < 0.3:
            await self._ask(
                "start",
                lambda service: service.execute(TENANT, reference, {"n": 77}, key=key),
                key=key,
                body={"workflow": reference, "input": {"n": 77}},
            )

    async def _meddle(self, number: int) -> None:
        if not self.known:
            return
        execution, name = self._chance.choice(self.known), f"r{number}"
        drawn = self._chance.random()
        if drawn < 0.35:
            word = self._chance.choice("abc")
            for _ in range(self._chance.choice((1, 1, 2))):
                await self._want("signal", execution, name, lambda stamp: m.Signal(stamp, name, word, 1))
        elif drawn < 0.55:
            await self._want("pause", execution, name, lambda stamp: m.Pause(stamp, name))
            await self._day.planes[0].clock.sleep(self._chance.random() * 3.0)
            await self._resume(execution, f"{name}+")
        elif drawn < 0.70:
            await self._want("cancel", execution, name, lambda stamp: m.Cancel(stamp, name))
        elif drawn < 0.75:
            await self._want("terminate", execution, name, lambda stamp: m.Terminate(stamp, name))
        elif drawn < 0.85:
            await self._want("vars", execution, name, lambda stamp: m.UpdateVars(stamp, name, {"n": 0}))
        elif drawn < 0.95:
            await self._want("retry", execution, name, lambda stamp: m.RetryFailed(stamp, name))
        else:
            await self._answer(execution)

    async def _resume(self, execution: ExecutionId, id: str) -> None:
        """Until it is so: a paused execution would wait for ever, and rightly."""
        while True:
            state = await self._want("resume", execution, id, lambda stamp: m.Resume(stamp, id))
            if state is not None and state.status is not Status.PAUSED:
                return
            seen = await self._ask("pause", lambda service: service.orchestrator.state(TENANT, execution), note=False)
            if seen is not None and seen.status is not Status.PAUSED:
                return
            await self._day.planes[0].clock.sleep(0.5)

    async def _answer(self, execution: ExecutionId) -> None:
        seen = await self._ask("answer", lambda service: service.orchestrator.state(TENANT, execution), note=False)
        for path in () if seen is None else seen.tasks:
            await self._want(
                "answer", execution, path, lambda stamp, path=path: m.TaskAnswered(stamp, StepPath(path), {"ok": True})
            )

    async def _want(
        self, kind: Kind, execution: ExecutionId, id: str, wanted: Callable[[Stamp], Any]
    ) -> ExecutionState | None:
        return await self._ask(
            kind,
            lambda service: service.orchestrator.request(TENANT, execution, wanted),
            execution=execution,
            id=id,
        )

    async def _ask(self, kind: Kind, call: Call, *, note: bool = True, **about: Any) -> ExecutionState | None:
        """What was answered; None where it was refused or nobody knows."""
        try:
            state = await self._called(call)
        except Unknown:
            if note:
                self.asked.append(Asked(kind, "unknown", **about))
            await self._day.planes[0].clock.sleep(0.2)
            return None
        except AgentFlowError as error:
            if note:
                self.asked.append(Asked(kind, "refused", **about))
            if not isinstance(error, _FAIR):
                self.surprises.append(f"{kind} was refused: {error!r}")
            return None
        about.setdefault("execution", state.execution)
        if note:
            self.asked.append(Asked(kind, "accepted", **about, was_over=kind != "start" and state.ended))
        return state

    async def _called(self, call: Call) -> ExecutionState:
        loop = self._day.loop
        serving = [plane for plane in self._day.planes if plane.is_up and plane.service is not None]
        if not serving:
            raise Unknown
        plane = self._chance.choice(serving)
        answered: Any = loop.create_future()

        async def serve(service: ControlPlane) -> None:
            try:
                state = await call(service)
                loop.outside(_settle, answered, state, None, after_s=0.001)
            except AgentFlowError as error:
                loop.outside(_settle, answered, None, error, after_s=0.001)
            except Exception as error:  # noqa: BLE001 - a client would see a 500
                self.surprises.append(f"a request failed: {error!r}")
                loop.outside(_settle, answered, None, Unknown(), after_s=0.001)

        assert plane.service is not None
        loop.spawn(plane.process, serve(plane.service))
        loop.outside(_settle, answered, None, Unknown(), after_s=PATIENCE_S)
        try:
            state: ExecutionState = await answered
        except AgentFlowError as error:
            if error.retryable or isinstance(error, ShardLost):
                raise Unknown from error
            raise
        return state


def _settle(answered: Any, state: ExecutionState | None, error: Exception | None) -> None:
    if answered.done():
        return
    if error is None:
        answered.set_result(state)
    else:
        answered.set_exception(error)
