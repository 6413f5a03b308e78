"""What `fans` and `undo` need of the walk that they are part of."""

from collections.abc import Callable
from typing import Any, Protocol

from agentflow.contracts.step import StepFault
from planners.expressions.scope import Facts
from planners.fsm.table import Frame, FsmState
from planners.fsm.turn import Turn


class Going(Protocol):
    @property
    def turn(self) -> Turn: ...

    def push(self, act: Callable[..., None], *args: Any) -> None: ...

    def facts(self, frame: Frame, output: Any, error: StepFault | None = None) -> Facts: ...

    def find(self, place: str) -> tuple[Frame, FsmState] | None: ...

    def enter(self, frame: Frame, name: str, output: Any, error: StepFault | None = None) -> None: ...

    def done(self, frame: Frame, state: FsmState, output: Any) -> None: ...

    def failed(self, frame: Frame, state: FsmState, fault: StepFault, output: Any = None) -> None: ...

    def end_timeout(self, frame: Frame, state: FsmState) -> None: ...

    def fail(self, fault: StepFault) -> None: ...
