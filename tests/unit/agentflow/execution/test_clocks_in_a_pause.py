"""Whose clock runs while an execution is paused: what docs/guides/operating.md declares, row by row (UA-7 d)."""

from pathlib import Path

import pytest

from agentflow.execution import messages as m
from agentflow.execution.program import AskHuman, StartTimer
from agentflow.execution.state import Status, next_wakeup
from tests.unit.agentflow.execution.scripted import Run, Script, step, types

GUIDE = Path(__file__).parents[4] / "docs" / "guides" / "operating.md"


def the_workflows_timeout_stands_still() -> None:
    run = Run(Script((step("a", timeout_ms=900_000),)), timeout_ms=10_000)
    run.at(3_000).want(m.Pause)
    assert run.time(500_000).events == ()
    run.at(600_000).want(m.Resume)

    assert run.state.deadline_ms == 600_000 + 8_000, "what was left when it was paused is left"
    assert types(run.time(608_000)) == ["execution.failed"]


def a_steps_timeout_runs_and_is_dealt_with_on_resume_after_the_results() -> None:
    run = Run(Script((step("late"), step("done")), done=()))
    run.want(m.Pause)
    run.at(2_000).report("done")
    assert run.time(500_000).events == ()

    assert types(run.want(m.Resume))[:2] == ["execution.resumed", "step.failed"]
    assert [outcome.key for outcome in run.program.heard] == ["done", "late"]


def timers_and_deadlines_of_tasks_run_and_fire_on_resume() -> None:
    run = Run(Script((StartTimer("deadline", 9_000), AskHuman("ask", {})), deadline=()))
    run.want(m.Pause)
    assert (run.time(500_000).events, next_wakeup(run.state)) == ((), None)
    assert run.state.status is Status.PAUSED

    assert types(run.want(m.Resume)) == ["execution.resumed", "timer.fired"]


CLOCKS = {
    "the workflow's `timeout`": the_workflows_timeout_stands_still,
    "a step's `timeout`": a_steps_timeout_runs_and_is_dealt_with_on_resume_after_the_results,
    "`wait`, retry delays, timeouts of tasks and signals": timers_and_deadlines_of_tasks_run_and_fire_on_resume,
}
# These are the calendar's, whatever an execution does.
OF_THE_CALENDAR = {"schedules", "quotas of a day, budgets of a month"}


@pytest.mark.parametrize("clock", CLOCKS)
def test_the_declared_rule_holds(clock):
    CLOCKS[clock]()


def test_every_clock_that_is_declared_is_held():
    table = GUIDE.read_text().partition("### Clocks\n")[2].partition("\n\n")[0]
    declared = {line.split(" | ")[0].removeprefix("| ") for line in table.splitlines()[2:]}

    assert declared == set(CLOCKS) | OF_THE_CALENDAR
