"""Machines that grow from a seed, every kind of state among them, and days on which anything may happen to them."""

import random
from collections import Counter
from typing import Any

import yaml

from agentflow.contracts.step import StepFault
from agentflow.execution import commands as c
from agentflow.execution import events as happened
from agentflow.execution import messages as m
from agentflow.execution.messages import Stamp
from agentflow.execution.state import Status, next_wakeup
from agentflow.ids import WorkerId
from tests.unit.planners.machines import Machine, definition

FAULTS = [StepFault("boom", "x", retryable=True), StepFault("net_down", "x"), StepFault("bad", "x")]
MESSAGES_MAX = 4_000
DEPTH = 2


class Grower:
    """Only ways forward, but for cycles through a state that may be entered so often and no more."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self._names = 0

    def machine(self, depth: int = DEPTH) -> dict[str, Any]:
        names = [self._name() for _ in range(self.chance.randint(1, 4 if depth else 2))]
        end = self._name()
        states = {name: self._state(name, [*names[at + 1 :], end], depth) for at, name in enumerate(names)}
        if self.chance.random() < 0.3:
            self._close_a_cycle(states, names)
        states[end] = self.chance.choice([None, {"agent": "x"}, {"succeed": {"end": "${input.n}"}}])
        reached = self._reached(names[0], states)
        final = [] if end not in reached or "succeed" in (states[end] or ()) else [end]
        kept = {name: state for name, state in states.items() if name in reached}
        return {"initial_state": names[0], "states": kept} | ({"final_states": final} if final else {})

    def _close_a_cycle(self, states: dict[str, Any], names: list[str]) -> None:
        last, first = states[names[-1]], states[names[0]]
        if "on_success" in last and first is not None:
            back = {"to": names[0], "condition": f"vars.n < {self.chance.randint(0, 5)}"}
            last["transitions"] = [back, {"to": last.pop("on_success")}]
            last["max_visits"] = self.chance.randint(1, 3)

    def _name(self) -> str:
        self._names += 1
        return f"s{self._names}"

    def _state(self, name: str, later: list[str], depth: int) -> dict[str, Any]:
        kinds = ["step", "step", "step", "choice", "wait", "signal", "subworkflow", "human", "fail"]
        kinds += ["parallel", "map", "loop"] * 2 if depth else []
        kinds += ["compensate"] if depth == DEPTH else []  # the outermost machine only
        kind = self.chance.choice(kinds)
        state = getattr(self, f"_{kind}")(depth)
        if kind == "choice":
            state["choice"] = [{"condition": "input.n > 3", "to": self.chance.choice(later)}, {"to": later[0]}]
        elif kind == "fail":
            return {"choice": [{"to": later[0]}]} if self.chance.random() < 0.7 else state
        else:
            state["on_success"] = later[0] if self.chance.random() < 0.7 else self.chance.choice(later)
            self._extras(state, later)
        if kind == "step" and self.chance.random() < 0.3:
            state["compensation"] = {"agent": "undoer", "input": {"of": name}}
        return state

    def _extras(self, state: dict[str, Any], later: list[str]) -> None:
        if self.chance.random() < 0.5:
            to = self.chance.choice(later)
            state["on_error"] = self.chance.choice([to, [{"codes": ["net_*", "timeout"], "to": to}]])
        if self.chance.random() < 0.3:
            state["vars"] = {"n": "${vars.n + 1}"}
        if self.chance.random() < 0.2:
            state["result"] = {"was": "${output}"}

    def _body(self, depth: int) -> dict[str, Any]:
        return self.machine(depth - 1) if self.chance.random() < 0.5 else {"agent": "x", "input": "${vars.n}"}

    def _step(self, _: int) -> dict[str, Any]:
        retry = {"max_attempts": self.chance.randint(1, 3), "initial": "10ms"}
        return {"agent": "x", "timeout": "2s", "retry": retry, "input": {"n": "${vars.n}"}}

    def _choice(self, _: int) -> dict[str, Any]:
        return {}

    def _wait(self, _: int) -> dict[str, Any]:
        return {"wait": self.chance.choice([{"duration": "1s"}, {"until": "${input.n * 1000}"}, {"until": "soon"}])}

    def _compensate(self, _: int) -> dict[str, Any]:
        return {"compensate": True}

    def _signal(self, _: int) -> dict[str, Any]:
        return {"wait": {"signal": self.chance.choice("ab")}, "timeout": "3s"}

    def _subworkflow(self, _: int) -> dict[str, Any]:
        return {"subworkflow": {"name": "other"}, "timeout": "5s"}

    def _human(self, _: int) -> dict[str, Any]:
        return {"human": {"title": "t"}, "timeout": "5s"}

    def _fail(self, _: int) -> dict[str, Any]:
        return {"fail": {"code": "on_purpose"}}

    def _parallel(self, depth: int) -> dict[str, Any]:
        branches = {f"b{at}": self._body(depth) for at in range(self.chance.randint(1, 3))}
        join = self.chance.choice(["all", "any", self.chance.randint(1, len(branches))])
        return self._timed({"parallel": {"branches": branches, "join": join}})

    def _map(self, depth: int) -> dict[str, Any]:
        over = list(range(self.chance.randint(0, 4)))
        given = {"over": over, "concurrency": self.chance.randint(1, 3), "tolerate": self.chance.choice([0, 1, "all"])}
        return self._timed({"map": {**given, "do": self._body(depth)}})

    def _loop(self, depth: int) -> dict[str, Any]:
        loop: dict[str, Any] = {"max": self.chance.randint(1, 3), "do": self._body(depth)}
        if self.chance.random() < 0.5:
            loop["while"] = f"index < {self.chance.randint(0, 3)}"
        else:
            loop["for"] = list(range(self.chance.randint(0, 3)))
        return self._timed({"loop": loop})

    def _timed(self, state: dict[str, Any]) -> dict[str, Any]:
        return state | ({"timeout": "4s"} if self.chance.random() < 0.3 else {})

    @staticmethod
    def _reached(initial: str, states: dict[str, Any]) -> set[str]:
        reached, rest = {initial}, [initial]
        while rest:
            state = states[rest.pop()] or {}
            ways = [way["to"] for way in (*state.get("choice", ()), *state.get("transitions", ()))]
            routes = state.get("on_error", [])
            ways += [routes] if isinstance(routes, str) else [route["to"] for route in routes]
            for target in [*ways, *([state["on_success"]] if "on_success" in state else [])]:
                if target not in reached:
                    reached.add(target)
                    rest.append(target)
        return reached


def grown(seed: int) -> str:
    return definition(yaml.safe_dump(Grower(seed).machine(), sort_keys=False), spec="vars: {n: 0}\n")


class Day(Machine):
    """One life of a machine. Each message goes through the heart, the log and JSON (see `Run.give`)."""

    def __init__(self, text: str, seed: int, *, meddle: bool = False) -> None:
        self.chance = random.Random(seed)
        self.meddle = meddle
        self.open: dict[tuple[str, str], Any] = {}  # what the world was told to do and not to stop doing
        self.begun: Counter[str] = Counter()
        self.past: list[m.ExecutionMessage] = []
        super().__init__(text, {"n": seed % 7})

    def give(self, message: m.ExecutionMessage) -> Any:
        decision = super().give(message)
        for event in decision.events:
            if isinstance(event, happened.StepScheduled):
                self.begun[f"{event.path}#{event.attempt}"] += 1
            elif isinstance(event, happened.StepSucceeded | happened.StepFailed):
                del self.open["step", event.path]
            elif isinstance(event, happened.ChildEnded | happened.TaskAnswered):
                del self.open["other", event.path]
        for command in decision.commands:
            match command:
                case c.DispatchStep():
                    self.open["step", command.path] = command
                case c.StartChild() | c.OpenTask():
                    self.open["other", command.path] = command
                case c.CancelStep():
                    del self.open["step", command.path]
                case c.CancelChild() | c.CloseTask():
                    del self.open["other", command.path]
        if decision.events:  # a request that had nothing to change is not remembered, and may count when it comes again
            self.past.append(message)
        return decision

    def live(self) -> "Day":
        retries = 2 if self.meddle else 0
        for _ in range(MESSAGES_MAX):
            if self.state.status is Status.FAILED and retries:
                retries -= 1
                self.want(m.RetryFailed)
            if self.state.ended:
                return self
            self.now += self.chance.randint(0, 300)
            self._happen()
        raise AssertionError("it did not end")

    def _happen(self) -> None:
        if self.chance.random() < 0.1:
            again = self.chance.choice(self.past)
            assert self.give(again).events == () or isinstance(again, m.TimeReached | m.StepReported)
        if self.meddle and self.chance.random() < 0.1:
            self.want(self.chance.choice([m.Pause, m.Resume, m.Pause, m.Resume, m.Cancel]))
        if self.state.paused_at_ms is not None and self.chance.random() < 0.3:
            self.want(m.Resume)
        elif self.chance.random() < 0.1:
            self.want(m.Signal, self.chance.choice("abc"), self.chance.random())
        elif self.open and self.chance.random() < 0.8:
            self._something_ends(self.chance.choice(sorted(self.open)))
        elif (moment := next_wakeup(self.state)) is not None:
            self.time(max(self.now, moment))

    def _something_ends(self, one: tuple[str, str]) -> None:
        command = self.open[one]
        fault = self.chance.choice([None, None, None, *FAULTS])
        output = None if fault else {"said": self.chance.randint(0, 9)}
        match command:
            case c.DispatchStep():
                self.give(
                    m.StepReported(
                        Stamp(self.now), command.path, command.attempt, WorkerId("w"), 0, 0, output, fault
                    )
                )  # fmt: skip
            case c.StartChild():
                self.child(command.path, output, fault)
            case c.OpenTask():
                self.answer(command.path, output)
