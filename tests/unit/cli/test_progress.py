import io
from typing import Any

import msgspec
import pytest
from rich.console import Console

from agentflow.cli.durations import duration, took
from agentflow.cli.feed import ExecutionLog
from agentflow.cli.progress import StepLine, StepLines, event_from_api, print_line
from agentflow.clock import rfc3339
from agentflow.contracts.step import StepFault
from agentflow.execution.events import (
    Event,
    ExecutionCompleted,
    ExecutionFailed,
    ExecutionStarted,
    StepFailed,
    StepScheduled,
    StepSucceeded,
    WorkflowRef,
)
from agentflow.ids import AgentName, ExecutionId, StepPath, TenantId, TraceId, WorkerId, WorkflowId
from agentflow.sdk.models import ExecutionEvent, LiveEvent

AT_MS = 1_700_000_000_000


def scheduled(path: str = "classify", *, attempt: int = 1, tool: str | None = None) -> StepScheduled:
    return StepScheduled(AT_MS, StepPath(path), path, attempt, AgentName("classifier"), {}, 1000, tool)


def succeeded(path: str = "classify", *, attempt: int = 1, after_ms: int = 45) -> StepSucceeded:
    at_ms = AT_MS + after_ms
    return StepSucceeded(at_ms, StepPath(path), attempt, {}, WorkerId("wrk_1"), at_ms, at_ms)


def failed(*, retry_after_ms: int | None = None) -> StepFailed:
    retry_at_ms = None if retry_after_ms is None else AT_MS + 45 + retry_after_ms
    return StepFailed(AT_MS + 45, StepPath("classify"), 1, StepFault("crash", "It broke."), retry_at_ms)


def test_a_step_is_a_line_once_its_outcome_is_known() -> None:
    lines = StepLines()

    assert lines.line(scheduled()) is None
    assert lines.line(succeeded()) == StepLine("done", "classify", "classifier", "45 ms")


def test_a_tool_is_shown_beside_the_agent_that_was_asked_to_use_it() -> None:
    lines = StepLines()
    lines.line(scheduled(tool="kb.search"))

    line = lines.line(succeeded())

    assert line is not None
    assert line.performer == "classifier:kb.search"


def test_a_failed_attempt_says_when_the_next_one_comes() -> None:
    lines = StepLines()
    lines.line(scheduled())

    assert lines.line(failed(retry_after_ms=200)) == StepLine(
        "again", "classify", "classifier", "45 ms", "It broke. Again in 200 ms."
    )
    lines.line(scheduled(attempt=2))
    assert lines.line(succeeded(attempt=2)) == StepLine("done", "classify", "classifier", "45 ms", "attempt 2")


def test_a_step_that_failed_for_good_says_why() -> None:
    lines = StepLines()
    lines.line(scheduled())

    assert lines.line(failed()) == StepLine("failed", "classify", "classifier", "45 ms", "It broke.")


def test_an_outcome_of_a_step_that_was_sent_before_we_listened_is_still_shown() -> None:
    assert StepLines().line(succeeded()) == StepLine("done", "classify")


def test_an_event_of_the_api_is_one_of_the_kernels_own() -> None:
    data = {"path": "classify", "attempt": 1, "output": {}, "worker": "wrk_1", "started_at_ms": 1, "finished_at_ms": 2}

    event = event_from_api(ExecutionEvent(3, "step.succeeded.v1", "2023-11-14T22:13:20.045Z", data))

    assert isinstance(event, StepSucceeded)
    assert event.at_ms == AT_MS + 45


def test_an_event_of_a_newer_version_is_passed_over() -> None:
    assert event_from_api(ExecutionEvent(3, "step.dreamt.v9", "2023-11-14T22:13:20.045Z", {})) is None


def test_brackets_in_what_a_step_said_are_printed_and_not_obeyed() -> None:
    out = io.StringIO()

    print_line(Console(file=out, width=200), StepLine("failed", "classify", "a", "1 ms", "[red]no[/red]"))

    assert "[red]no[/red]" in out.getvalue()
    assert "✗ classify" in out.getvalue()


@pytest.mark.parametrize(
    ("ms", "text"), [(0, "0 ms"), (999, "999 ms"), (1000, "1.00 s"), (59_990, "59.99 s"), (125_400, "2 min 5 s")]
)
def test_a_duration_is_as_exact_as_a_person_can_use(ms: int, text: str) -> None:
    assert duration(ms) == text


def test_what_has_not_ended_has_no_duration() -> None:
    assert took("2026-11-18T06:00:00.000Z", None) == ""
    assert took("2026-11-18T06:00:00.000Z", "2026-11-18T06:00:01.500Z") == "1.50 s"


def told(event: Event, *, large: list[dict[str, Any]] | None = None) -> LiveEvent:
    data = msgspec.to_builtins(event)
    kind, at = data.pop("type"), rfc3339(data.pop("at_ms"))
    return LiveEvent(1, "exec_ABCDEF", "support", 1, kind, at, data, large or [])


def test_the_live_log_tells_an_execution_from_start_to_end() -> None:
    out = io.StringIO()
    log = ExecutionLog(Console(file=out, width=200))
    workflow = WorkflowRef(WorkflowId("wf_1"), "support", "1.0.0", "d")

    log.show(told(ExecutionStarted(AT_MS, ExecutionId("exec_A"), TenantId("default"), workflow, {}, TraceId("t"))))
    log.show(told(scheduled()))
    log.show(told(succeeded()))
    log.show(told(ExecutionCompleted(AT_MS + 50, {})))

    assert [line.split() for line in out.getvalue().splitlines()] == [
        ["22:13:20", "support", "ABCDEF", "started", "exec_ABCDEF"],
        ["22:13:20", "support", "ABCDEF", "✓", "classify", "classifier", "45", "ms"],
        ["22:13:20", "support", "ABCDEF", "completed", "in", "50", "ms"],
    ]


def test_the_live_log_says_why_an_execution_failed() -> None:
    out = io.StringIO()

    ExecutionLog(Console(file=out, width=200)).show(told(ExecutionFailed(AT_MS, StepFault("crash", "It broke."))))

    assert "crash: It broke." in out.getvalue()


def test_the_live_log_warns_of_a_large_value_with_its_step_field_and_size() -> None:
    out = io.StringIO()
    large = [{"path": ["output"], "bytes": 300 * 1024}]

    ExecutionLog(Console(file=out, width=200)).show(told(succeeded(), large=large))

    (warning,) = [line for line in out.getvalue().splitlines() if " ! " in line]
    assert "classify: `output` has 300 KB, more than the 256 KB" in warning
