"""What an execution of a plan will probably cost and how long it will take: by what earlier ones did. Pure.

Each step is estimated by its own runs in earlier executions of the workflow; where there were none, by what its agent
or tool has cost elsewhere; then by the price that its tool declares. What nobody knows is named, and never nought. How
often a step runs is known from those executions as well, and otherwise bounded by the plan.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Literal

import msgspec

from agentflow.contracts.step import TOOLS_AGENT
from planners.plan import Plan, PlanStep, StepCount, add

Basis = Literal["step", "agent", "tool", "declared", "none"]


class Usage(msgspec.Struct, frozen=True):
    """What one run of a step used, all its attempts together. `unpriced` are the resources nobody knows a price of."""

    microdollars: int = 0
    tokens: int = 0
    priced: bool = False  # anything of it
    unpriced: tuple[str, ...] = ()

    def __add__(self, other: "Usage") -> "Usage":
        unpriced = tuple(sorted({*self.unpriced, *other.unpriced}))
        microdollars = self.microdollars + other.microdollars
        return Usage(microdollars, self.tokens + other.tokens, self.priced or other.priced, unpriced)


class StepRun(msgspec.Struct, frozen=True):
    """`usage` is None where nobody has told what it used."""

    name: str
    duration_ms: int | None
    usage: Usage | None


class ObservedRun(msgspec.Struct, frozen=True):
    """One execution that has completed."""

    duration_ms: int
    steps: tuple[StepRun, ...]


class Figure(msgspec.Struct, frozen=True):
    """What is expected, and what is not exceeded in 19 of 20 cases; None where nobody can tell."""

    expected: float | None
    upper: float | None
    observations: int  # that it rests on


class StepEstimate(msgspec.Struct, frozen=True):
    """`dollars`, `tokens` and `duration_ms` are of one run of it."""

    name: str
    agent: str
    tool: str | None
    basis: Basis  # of the dollars
    runs: Figure
    microdollars: Figure
    tokens: Figure
    duration_ms: Figure


class Unknown(msgspec.Struct, frozen=True):
    """Something that the dollars leave out."""

    name: str
    reason: str


class CostEstimate(msgspec.Struct, frozen=True):
    """`executions` are those it was calibrated by; the dollars leave out what is `unknown`."""

    executions: int
    steps: tuple[StepEstimate, ...]
    runs: Figure
    microdollars: Figure
    tokens: Figure
    duration_ms: Figure
    unknown: tuple[Unknown, ...]


class PlanCostModel(msgspec.Struct, frozen=True):
    runs: tuple[ObservedRun, ...] = ()
    elsewhere: dict[str, tuple[Usage, ...]] = {}  # by agent, and by tool as `tool NAME`
    declared: dict[str, int] = {}  # microdollars of one call, by tool

    def calibrate(self, runs: Iterable[ObservedRun]) -> "PlanCostModel":
        return msgspec.structs.replace(self, runs=(*self.runs, *runs))

    def estimate(self, plan: Plan) -> CostEstimate:
        bounds = _by_name(plan.shape.steps)
        wanted = {node.step.name: node.step for node in plan.nodes if node.step is not None}
        steps, unknown = [], []
        for step in wanted.values():
            estimated, why = self._step(step, bounds.get(step.name))
            steps.append(estimated)
            unknown += [Unknown(step.name, reason) for reason in why]
        unknown += [
            Unknown(node.id, "It runs another workflow, which has an estimate of its own.")
            for node in plan.nodes
            if node.kind == "subworkflow"
        ]
        return CostEstimate(
            executions=len(self.runs),
            steps=tuple(steps),
            runs=self._total_runs(plan, steps),
            microdollars=self._total(steps, "microdollars"),
            tokens=self._total(steps, "tokens"),
            duration_ms=_figure([run.duration_ms for run in self.runs]),
            unknown=tuple(unknown),
        )

    def _step(self, step: PlanStep, bounds: StepCount | None) -> tuple[StepEstimate, list[str]]:
        mine = [one for run in self.runs for one in run.steps if one.name == step.name]
        told = [one.usage for one in mine if one.usage is not None]
        basis: Basis = "step"
        if not told:
            place = f"tool {step.tool}" if step.agent == TOOLS_AGENT else step.agent
            basis, told = ("tool" if step.agent == TOOLS_AGENT else "agent"), list(self.elsewhere.get(place, ()))
        unpriced = sorted(set(chain.from_iterable(usage.unpriced for usage in told)))
        why = [f"Nobody knows the price of {name}." for name in unpriced]
        priced = [usage.microdollars for usage in told if usage.priced]
        dollars = _figure(priced)
        if not priced:
            declared = self.declared.get(step.tool or "")
            basis = "none" if declared is None else "declared"
            dollars = Figure(declared, declared, 0)
            if declared is None and not why:
                why.append("It has not told yet what it costs." if mine else "It has not been observed yet.")
            elif declared is not None:
                why = []
        durations = [one.duration_ms for one in mine if one.duration_ms is not None]
        duration = _figure(durations) if durations else Figure(None, step.timeout_ms * step.attempts, 0)
        estimated = StepEstimate(
            name=step.name,
            agent=step.agent,
            tool=step.tool,
            basis=basis,
            runs=self._runs(step.name, bounds),
            microdollars=dollars,
            tokens=_figure([usage.tokens for usage in told]),
            duration_ms=duration,
        )
        return estimated, why

    def _runs(self, name: str, bounds: StepCount | None) -> Figure:
        """How often it begins in one execution."""
        if self.runs:
            return _figure([sum(one.name == name for one in run.steps) for run in self.runs])
        if bounds is None:
            return Figure(None, None, 0)
        # Not seen yet: as if every way were taken once, which is more than alternatives allow.
        return Figure(max(bounds.min, min(1, 1 if bounds.max is None else bounds.max)), bounds.max, 0)

    def _total_runs(self, plan: Plan, steps: Sequence[StepEstimate]) -> Figure:
        if self.runs:
            return _figure([len(run.steps) for run in self.runs])
        return Figure(sum(one.runs.expected or 0 for one in steps), plan.shape.max, 0)

    def _total(self, steps: Sequence[StepEstimate], what: Literal["microdollars", "tokens"]) -> Figure:
        """What all steps cost together. One that has no figure is left out of what is expected, and there is no bound
        then; with enough executions the bound is theirs, as steps are seldom at their dearest all together."""
        figures = [(one.runs, getattr(one, what)) for one in steps]
        known = [(runs, each) for runs, each in figures if each.expected is not None and runs.expected is not None]
        if figures and not known:
            return Figure(None, None, 0)
        observations = sum(each.observations for _, each in known)
        expected = sum(runs.expected * each.expected for runs, each in known)
        upper: float | None = None
        if len(known) == len(figures) and all(runs.upper is not None for runs, _ in figures):
            upper = sum(runs.upper * each.upper for runs, each in known)
            if self.runs and all(one.basis in ("step", "declared") for one in steps):
                whole = [sum(getattr(it.usage, what) for it in run.steps if it.usage is not None) for run in self.runs]
                upper = max(expected, min(upper, _quantile(whole)))
        return Figure(expected, upper, observations)


def _by_name(counts: Iterable[StepCount]) -> Mapping[str, StepCount]:
    """A name may stand in several places."""
    found: dict[str, StepCount] = {}
    for one in counts:
        before = found.get(one.name, StepCount(one.name, 0, 0))
        found[one.name] = StepCount(one.name, before.min + one.min, add(before.max, one.max))
    return found


def _figure(values: Sequence[int]) -> Figure:
    if not values:
        return Figure(None, None, 0)
    return Figure(sum(values) / len(values), _quantile(values), len(values))


def _quantile(values: Sequence[int]) -> float:
    """What 19 of 20 do not exceed; of fewer than that, the highest."""
    return sorted(values)[math.ceil(0.95 * len(values)) - 1]
