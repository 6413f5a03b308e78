import io
from typing import Any

import pytest
from rich.console import Console

from agentflow.cli.durations import duration, took
from agentflow.cli.feed import ExecutionLog
from agentflow.cli.progress import StepLine, StepLines, event_from_api, event_from_feed, print_line
from agentflow.contracts.message import Message, seal
from agentflow.contracts.step import StepFault
from agentflow.execution.events import StepFailed, StepScheduled, StepSucceeded
from agentflow.ids import AgentName, MessageId, StepPath, TraceId, WorkerId
from agentflow.sdk.models import ExecutionEvent

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
    assert event_from_feed({"type": "step.dreamt.v9", "at_ms": 1}) is None


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


def feed(*events: dict[str, Any]) -> Message:
    commit = {"execution_id": "exec_ABCDEF", "after_version": 0, "events": events}
    return seal(
        id=MessageId("m"),
        trace_id=TraceId("t"),
        span_id="s",
        sender="orchestrator",
        to="support",
        type="event",
        payload={"v": 2, "workflow": "support", "shard": 0, "commits": [commit]},
        metadata={},
        at_ms=AT_MS,
    )


def test_the_live_log_tells_an_execution_from_start_to_end() -> None:
    out = io.StringIO()
    log = ExecutionLog(Console(file=out, width=200))
    workflow = {"id": "wf_1", "name": "support", "version": "1.0.0", "digest": "d"}
    start = {"execution": "exec_ABCDEF", "tenant": "default", "workflow": workflow, "input": {}, "trace": "t"}

    log.show(feed({"type": "execution.started.v1", "at_ms": AT_MS, **start}, as_fed(scheduled())))
    log.show(feed(as_fed(succeeded())))
    log.show(feed({"type": "execution.completed.v1", "at_ms": AT_MS + 50, "output": {}}))

    told = [line.split() for line in out.getvalue().splitlines()]
    assert told == [
        ["22:13:20", "support", "ABCDEF", "started", "exec_ABCDEF"],
        ["22:13:20", "support", "ABCDEF", "✓", "classify", "classifier", "45", "ms"],
        ["22:13:20", "support", "ABCDEF", "completed", "in", "50", "ms"],
    ]


def test_the_live_log_says_why_an_execution_failed() -> None:
    out = io.StringIO()
    fault = {"code": "crash", "message": "It broke."}

    ExecutionLog(Console(file=out, width=200)).show(
        feed({"type": "execution.failed.v1", "at_ms": AT_MS, "fault": fault})
    )

    assert "crash: It broke." in out.getvalue()


def test_the_live_log_warns_of_a_large_value_with_its_step_field_and_size() -> None:
    out = io.StringIO()
    given = {**as_fed(succeeded()), "output": None, "claims": [[["output"], "ab" * 32, 300 * 1024]]}

    ExecutionLog(Console(file=out, width=200)).show(feed(given))

    (warning,) = [line for line in out.getvalue().splitlines() if " ! " in line]
    assert "classify: `output` has 300 KB, more than the 256 KB" in warning


def as_fed(event: StepScheduled | StepSucceeded) -> dict[str, Any]:
    import msgspec

    told: dict[str, Any] = msgspec.to_builtins(event)
    return told
