"""Bodies inside a state: the branches of `parallel`, the items of `map`, the iterations of `loop`.

How far one has come is a small record (`+`), and each result is kept by itself (`.`), so an item of ten thousand
costs what an item of ten does. Branches and items are started one after the other: the first may fail at once, and
then the rest is never begun.
"""

from typing import Any

from agentflow import limits
from agentflow.contracts.step import StepFault
from agentflow.execution.program import Halt
from planners.expressions.scope import Facts
from planners.fsm.going import Going
from planners.fsm.table import Fan, Frame, FsmState, Machine
from planners.fsm.turn import MISSING


class Fans:
    __slots__ = ("_walk",)

    def __init__(self, walk: Going) -> None:
        self._walk = walk

    # Branches and items.

    def begin(self, frame: Frame, state: FsmState, facts: Facts) -> None:
        fan, path, turn = _fan(state), frame.place(state), self._walk.turn
        total = len(fan.bodies)
        if fan.over is not None:
            items = _list(fan.over.render(facts), limits.MAP_ITEMS_MAX)
            if isinstance(items, StepFault):
                self._walk.push(self._walk.failed, frame, state, items)
                return
            turn.remember(f"*{path}", items)
            total = len(items)
        turn.remember(f"+{path}", {"total": total, "next": 0, "ok": 0, "failed": 0})
        self._walk.push(self._fill, frame, state)

    def _fill(self, frame: Frame, state: FsmState) -> None:
        """Start the next body, if there is one and room for it."""
        fan, path, turn = _fan(state), frame.place(state), self._walk.turn
        progress = turn.recall(f"+{path}")
        if progress is None:
            return  # it ended while others were still to be started
        if progress["total"] == progress["ok"] + progress["failed"]:
            self._conclude(frame, state, None)
            return
        number, under_way = progress["next"], progress["next"] - progress["ok"] - progress["failed"]
        if number >= progress["total"] or (fan.concurrency and under_way >= fan.concurrency):
            return
        turn.remember(f"+{path}", {**progress, "next": number + 1})
        self._walk.push(self._fill, frame, state)
        inner = self.frame(frame, state, _slot(fan, number))
        self._walk.push(self._walk.enter, inner, inner.machine.initial, None)

    def slot_ended(self, frame: Frame, state: FsmState, slot: str, output: Any, fault: StepFault | None) -> None:
        if state.loop is not None:
            self._iteration_ended(frame, state, output, fault)
            return
        fan, path, turn = _fan(state), frame.place(state), self._walk.turn
        progress = turn.recall(f"+{path}")
        if progress is None:
            return
        ended = "ok" if fault is None else "failed"
        progress = {**progress, ended: progress[ended] + 1}
        kept = {"o": output} if fault is None else {"e": {"code": fault.code, "message": fault.message}}
        turn.remember(f".{path}/{slot}", kept)
        turn.remember(f"+{path}", progress)
        tolerated = progress["total"] - fan.needed if fan.over is None else fan.tolerated
        if fault is not None and tolerated is not None and progress["failed"] > tolerated:
            which = f"Branch `{slot}`" if fan.over is None else f"Item {slot}"
            self._conclude(frame, state, StepFault(fault.code, f"{which} failed: {fault.message}"))
        elif fan.over is None and progress["ok"] >= fan.needed:
            self._conclude(frame, state, None)
        else:
            self._walk.push(self._fill, frame, state)

    def _conclude(self, frame: Frame, state: FsmState, fault: StepFault | None) -> None:
        """Give up what still runs, put the results together, and go on."""
        output = None if fault is not None else self._results(frame, state)
        self._tear_down(frame, state)
        if fault is None:
            self._walk.push(self._walk.done, frame, state, output)
        else:
            self._walk.push(self._walk.failed, frame, state, fault)

    def _results(self, frame: Frame, state: FsmState) -> dict[str, Any]:
        fan, path, turn = _fan(state), frame.place(state), self._walk.turn
        progress = turn.recall(f"+{path}")
        slots = [_slot(fan, number) for number in range(progress["total"])]
        kept = [turn.recall(f".{path}/{slot}") or {} for slot in slots]
        if fan.over is None:
            return {
                "results": {slot: one["o"] for slot, one in zip(slots, kept, strict=True) if "o" in one},
                "errors": {slot: one["e"] for slot, one in zip(slots, kept, strict=True) if "e" in one},
            }
        return {
            "results": [one.get("o") for one in kept],
            "errors": [{"index": index, **one["e"]} for index, one in enumerate(kept) if "e" in one],
        }

    # Iterations.

    def begin_loop(self, frame: Frame, state: FsmState, facts: Facts) -> None:
        loop = state.loop
        if loop is not None and loop.for_ is not None:
            items = _list(loop.for_.render(facts), loop.bound)
            if isinstance(items, StepFault):
                self._walk.push(self._walk.failed, frame, state, items)
                return
            self._walk.turn.remember(f"*{frame.place(state)}", items)
        self._iterate(frame, state, 0, None)

    def _iterate(self, frame: Frame, state: FsmState, number: int, output: Any) -> None:
        loop, path, turn = state.loop, frame.place(state), self._walk.turn
        if loop is None:
            return
        items = turn.recall(f"*{path}") if loop.for_ is not None else None
        goes_on: bool | StepFault = items is None or number < len(items)
        if goes_on is True and loop.while_ is not None:
            facts = self._walk.facts(frame, output)
            goes_on = loop.while_.holds(_with_locals(facts, {**frame.locals, "index": number}))
        if goes_on is True and number >= loop.bound:
            goes_on = StepFault("loop_bound", f"It would go on after {loop.bound} iterations.")
        if goes_on is not True:
            self._loop_ended(frame, state, output, goes_on if isinstance(goes_on, StepFault) else None)
            return
        turn.hops += 1
        turn.remember(f"+{path}", {"next": number + 1})
        inner = self.frame(frame, state, "do")
        self._walk.push(self._walk.enter, inner, inner.machine.initial, output)

    def _iteration_ended(self, frame: Frame, state: FsmState, output: Any, fault: StepFault | None) -> None:
        progress = self._walk.turn.recall(f"+{frame.place(state)}")
        if progress is None or state.loop is None:
            return
        ends: bool | StepFault = False
        if fault is None and state.loop.break_ is not None:
            inner = self.frame(frame, state, "do")
            ends = state.loop.break_.holds(_with_locals(self._walk.facts(frame, output), inner.locals))
        if fault is not None or isinstance(ends, StepFault):
            self._loop_ended(frame, state, None, fault or (ends if isinstance(ends, StepFault) else None))
        elif ends:
            self._loop_ended(frame, state, output, None)
        else:
            self._iterate(frame, state, progress["next"], output)

    def _loop_ended(self, frame: Frame, state: FsmState, output: Any, fault: StepFault | None) -> None:
        self._walk.turn.forget(f"+{frame.place(state)}")
        self._walk.turn.forget(f"*{frame.place(state)}")
        if fault is None:
            self._walk.push(self._walk.done, frame, state, output)
        else:
            self._walk.push(self._walk.failed, frame, state, fault)

    # Frames, and giving them up.

    def frame(self, parent: Frame, state: FsmState, slot: str) -> Frame:
        """The frame of one body, with the names that are known there alone."""
        body = state.body(slot)
        path = parent.place(state)
        local = parent.locals
        item = state.fan.item if state.fan is not None else state.loop.item if state.loop is not None else ""
        if state.loop is not None or (state.fan is not None and state.fan.over is not None):
            progress = self._walk.turn.recall(f"+{path}") or {}
            index = int(slot) if slot.isdigit() else progress.get("next", 1) - 1
            items = self._walk.turn.recall(f"*{path}", MISSING)
            local = {**local, "index": index}
            if items is not MISSING and index < len(items):
                local = {**local, item: items[index]}
        return Frame(body or Machine("", {}), f"{path}/{slot}", parent, state, slot, local)

    def halt_state(self, frame: Frame, state: FsmState) -> None:
        """Give up whatever a state waits for, and forget how far it had come."""
        if state.fan is None and state.loop is None:
            self._walk.turn.intents.append(Halt(frame.place(state)))
        else:
            self._tear_down(frame, state)

    def _tear_down(self, frame: Frame, state: FsmState) -> None:
        path, turn = frame.place(state), self._walk.turn
        progress = turn.recall(f"+{path}")
        if progress is not None and state.loop is not None:
            self._halt_slot(frame, state, "do")
        elif progress is not None:
            for number in range(progress["next"]):
                slot = _slot(_fan(state), number)
                if turn.recall(f".{path}/{slot}", MISSING) is MISSING:
                    self._halt_slot(frame, state, slot)
                else:
                    turn.forget(f".{path}/{slot}")
        turn.forget(f"+{path}")
        turn.forget(f"*{path}")

    def _halt_slot(self, frame: Frame, state: FsmState, slot: str) -> None:
        body = state.body(slot)
        if body is None:
            return
        inner = Frame(body, f"{frame.place(state)}/{slot}", frame, state, slot)
        name = "" if body.direct else self._walk.turn.recall(f"@{inner.path}")
        within = body.states.get(name) if name is not None else None
        if within is not None:
            self._walk.end_timeout(inner, within)
            self.halt_state(inner, within)
        self.clear(inner)

    def clear(self, frame: Frame) -> None:
        """Forget what a nested machine remembered: it has ended."""
        if frame.machine.direct:
            return
        turn = self._walk.turn
        turn.forget(f"@{frame.path}")
        for state in frame.machine.states.values():
            turn.forget(f"={frame.place(state)}")
            if state.max_visits is not None:
                turn.forget(f"#{frame.place(state)}")


def _fan(state: FsmState) -> Fan:
    return state.fan if state.fan is not None else Fan({})


def _slot(fan: Fan, number: int) -> str:
    return str(number) if fan.over is not None else list(fan.bodies)[number]


def _list(rendered: Any, most: int) -> list[Any] | StepFault:
    if isinstance(rendered, StepFault):
        return rendered
    if not isinstance(rendered, list):
        return StepFault("not_a_list", "What it should go over is not a list.")
    if len(rendered) > most:
        return StepFault("too_many_items", f"There are {len(rendered)} items; {most} are allowed.")
    return rendered


def _with_locals(facts: Facts, known: Any) -> Facts:
    return Facts(
        facts.input, facts.output, facts.outputs, facts.workflow, facts.error, facts.vars, facts.env, known
    )  # fmt: skip
