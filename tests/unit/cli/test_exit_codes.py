import pytest

from agentflow.cli import main, version
from agentflow.cli.errors import report
from agentflow.errors import Bug, Conflict, Invalid, NotFound, Problem, Rejected, Unavailable
from agentflow.process_exit import ExecutionDidNotComplete, ExitCode


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Rejected("no", hint="do"), ExitCode.REJECTED),
        (Invalid("no", hint="do"), ExitCode.REJECTED),
        (NotFound("no", hint="do"), ExitCode.REJECTED),
        (Conflict("no", hint="do"), ExitCode.REJECTED),
        (Unavailable("away", hint="do"), ExitCode.UNAVAILABLE),
        (PermissionError(13, "Permission denied", ".agentflow"), ExitCode.UNAVAILABLE),
        (ExecutionDidNotComplete("exec_1", "boom"), ExitCode.EXECUTION_FAILED),
        (Bug("ours"), ExitCode.BUG),
        (ZeroDivisionError("division by zero"), ExitCode.BUG),
        (AssertionError(), ExitCode.BUG),
    ],
)
def test_each_family_has_its_exit_code_and_one_message_without_a_trace(
    error: Exception, code: ExitCode, capsys: pytest.CaptureFixture[str]
) -> None:
    assert report(error, debug=False) == code

    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error[AF")
    assert "  try: " in captured.err
    assert "Traceback" not in captured.err


def test_the_codes_scripts_rely_on_do_not_change() -> None:
    assert {code.name: code.value for code in ExitCode} == {
        "OK": 0,
        "REJECTED": 2,
        "UNAVAILABLE": 3,
        "EXECUTION_FAILED": 4,
        "BUG": 70,
        "INTERRUPTED": 130,
    }


def test_every_problem_is_listed_with_its_place(capsys: pytest.CaptureFixture[str]) -> None:
    problems = [Problem("unknown state", "Did you mean `b`?", 3, 7), Problem("no end", path="spec.fsm")]

    report(Invalid("The definition is not usable.", hint="Correct it.", problems=problems), debug=False)

    assert capsys.readouterr().err.splitlines() == [
        "error[AF1002]: The definition is not usable.",
        "  3:7: unknown state (Did you mean `b`?)",
        "  spec.fsm: no end",
        "  try: Correct it.",
    ]


def breaking(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """`af version` breaks in the middle of its work."""

    def broken(*_: object) -> None:
        raise error

    monkeypatch.setattr(version, "stdout", broken)


def test_an_unexpected_error_is_a_message_that_says_how_to_see_the_trace(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    breaking(monkeypatch, RuntimeError("the table is on fire"))

    assert main.af(["version"]) == ExitCode.BUG

    told = capsys.readouterr().err
    assert "RuntimeError: the table is on fire" in told
    assert "AF_LOG_LEVEL=debug" in told
    assert "Traceback" not in told


def test_the_trace_is_shown_to_who_asks_for_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AF_LOG_LEVEL", "debug")
    breaking(monkeypatch, RuntimeError("the table is on fire"))

    assert main.af(["version"]) == ExitCode.BUG
    assert "Traceback" in capsys.readouterr().err


def test_ctrl_c_ends_with_130(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    breaking(monkeypatch, KeyboardInterrupt())

    assert main.af(["version"]) == ExitCode.INTERRUPTED
    assert "Traceback" not in capsys.readouterr().err


def test_wrong_usage_ends_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.af(["run"]) == ExitCode.REJECTED
    assert main.af(["nosuch"]) == ExitCode.REJECTED
    assert "No such command" in capsys.readouterr().err


def test_a_wrong_setting_ends_with_2_before_anything_is_done(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AF_API_ULR", "http://127.0.0.1:1")

    assert main.af(["workflow", "list"]) == ExitCode.REJECTED
    assert "Did you mean `AF_API_URL`?" in capsys.readouterr().err


def test_no_control_plane_ends_with_3(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("AF_API_URL", "http://127.0.0.1:1")

    assert main.af(["executions"]) == ExitCode.UNAVAILABLE
    assert "af dev" in capsys.readouterr().err
