"""The saga: what was done and declares a `compensation` is undone in reverse, one after the other.

What is needed for it is written down when a state completes, its input already made. A compensation that fails does
not stop the others; its name is told in the end.
"""

from typing import Any

from agentflow.contracts.step import StepFault
from agentflow.execution.program import Finish, RunStep, StepOutcome
from planners.fsm.going import Going

KEY = "!undo/"


class Undo:
    __slots__ = ("_walk",)

    def __init__(self, walk: Going) -> None:
        self._walk = walk

    @property
    def has_work(self) -> bool:
        return bool(self._walk.turn.recall("u"))

    def note(self, place: str, input: Any) -> None:
        """`place` was done; undoing it would take this input."""
        turn = self._walk.turn
        count = (turn.recall("u") or 0) + 1
        turn.remember("u", count)
        turn.remember(f"u{count}", {"of": place, "input": input})

    def begin(self, then: dict[str, Any]) -> None:
        """Undo everything, and then: `fail` with a fault, `go` on from a state, or `end`."""
        self._walk.turn.remember("!", {**then, "undone": 0, "not_undone": []})
        self._walk.push(self._next)

    def _next(self) -> None:
        turn = self._walk.turn
        count = turn.recall("u") or 0
        if count == 0:
            self._finish()
            return
        entry = turn.recall(f"u{count}")
        found = self._walk.find(entry["of"])
        work = None if found is None else found[1].compensation
        if found is None or work is None:
            self.ended(count, StepFault("unknown_state", "The workflow has no such state."))
            return
        label = f"{found[1].label}.compensation"
        turn.intents.append(
            RunStep(f"{KEY}{count}", label, work.agent, work.tool, entry["input"], work.timeout_ms, work.retry)
        )

    def heard(self, outcome: StepOutcome) -> None:
        self.ended(int(outcome.key.removeprefix(KEY)), outcome.fault)

    def ended(self, count: int, fault: StepFault | None) -> None:
        turn = self._walk.turn
        under_way, entry = turn.recall("!"), turn.recall(f"u{count}")
        if under_way is None or entry is None:
            return
        if fault is None:
            turn.remember("!", {**under_way, "undone": under_way["undone"] + 1})
        else:
            turn.remember("!", {**under_way, "not_undone": [*under_way["not_undone"], entry["of"]]})
        turn.forget(f"u{count}")
        turn.remember("u", count - 1)
        self._walk.push(self._next)

    def _finish(self) -> None:
        turn = self._walk.turn
        under_way = turn.recall("!")
        turn.forget("!")
        turn.forget("u")
        match under_way["then"]:
            case "fail":
                message = under_way["message"]
                if under_way["not_undone"]:
                    message = f"{message} Not undone: {', '.join(under_way['not_undone'])}."
                self._walk.fail(StepFault(under_way["code"], message))
            case "go":
                found = self._walk.find(under_way["of"])
                report = {"undone": under_way["undone"], "not_undone": under_way["not_undone"]}
                if found is not None:
                    self._walk.push(self._walk.done, found[0], found[1], report)
            case _:
                turn.intents.append(Finish(None))
                turn.over = True
