"""`af validate` with the real planners, in a process of their own as always."""

import io
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from agentflow.cli import doctor
from agentflow.cli.main import af
from agentflow.process_exit import ExitCode

GOOD = """\
apiVersion: agentflow/v1
kind: Workflow
metadata: {name: greeting, version: 1.0.0}
spec:
  planner: fsm
  fsm:
    initial_state: greet
    final_states: [greet]
    states:
      greet: {agent: greeter}
"""

TWO_FAULTS = GOOD.replace("initial_state: greet", "initial_state: gret").replace("agent: greeter", "agnet: greeter")


@pytest.fixture(autouse=True)
def _definitions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("good.yaml").write_text(GOOD)
    Path("bad.yaml").write_text(TWO_FAULTS)


def test_a_good_definition_is_told_by_name_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert af(["validate", "good.yaml"]) == ExitCode.OK
    assert capsys.readouterr().out == "ok greeting 1.0.0 (1 step, 1 in one execution)\n"


def test_every_fault_is_told_with_file_line_and_column(capsys: pytest.CaptureFixture[str]) -> None:
    assert af(["validate", "bad.yaml", "good.yaml"]) == ExitCode.REJECTED

    captured = capsys.readouterr()
    assert captured.out == "ok greeting 1.0.0 (1 step, 1 in one execution)\n"
    told = captured.err.splitlines()
    assert all(line.startswith("bad.yaml:") for line in told)
    assert any(line.startswith("bad.yaml:10:") and "agnet" in line for line in told)


def test_text_that_is_no_yaml_is_told_with_its_place(capsys: pytest.CaptureFixture[str]) -> None:
    Path("broken.yaml").write_text("metadata: {name: [\n")

    assert af(["validate", "broken.yaml"]) == ExitCode.REJECTED
    assert capsys.readouterr().err.startswith("broken.yaml:")


def test_a_dash_reads_stdin(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(GOOD.encode())))

    assert af(["validate", "-"]) == ExitCode.OK
    assert capsys.readouterr().out == "ok greeting 1.0.0 (1 step, 1 in one execution)\n"


def test_programs_get_every_verdict_as_one_value(capsys: pytest.CaptureFixture[str]) -> None:
    assert af(["validate", "good.yaml", "bad.yaml", "--json"]) == ExitCode.REJECTED

    good, bad = json.loads(capsys.readouterr().out)
    assert (good["file"], good["ok"], good["name"]) == ("good.yaml", True, "greeting")
    assert (bad["file"], bad["ok"]) == ("bad.yaml", False)
    assert all(problem["line"] for problem in bad["problems"])


def test_a_file_that_is_not_there_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert af(["validate", "no/such.yaml"]) == ExitCode.REJECTED
    assert "no/such.yaml cannot be read" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("condition", "column", "message"),
    [
        ("input.severity > 'high'", 37, "`>` does not take (int, string)."),
        ("input.severty > 1", 28, "`input` has no field `severty`. (Did you mean `severity`?)"),
        ("$.input.severty", 30, "`input` has no field `severty`. (Did you mean `severity`?)"),
        ("input.severity", 22, "A condition must be true or false; this is of type int."),
    ],
)
def test_a_type_error_or_an_unknown_field_in_an_expression_is_rejected(
    condition: str, column: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("wrong.yaml").write_text(
        GOOD.replace(
            "  fsm:\n",
            "  input: {type: object, additionalProperties: false, properties: {severity: {type: integer}}}\n  fsm:\n",
        ).replace(
            "greet: {agent: greeter}\n",
            "greet:\n        agent: greeter\n        transitions:\n"
            f"        - condition: {condition}\n          to: bye\n        - to: bye\n      bye: {{agent: greeter}}\n",
        ).replace("final_states: [greet]", "final_states: [bye]")
    )  # fmt: skip

    assert af(["validate", "wrong.yaml"]) == ExitCode.REJECTED
    (told,) = capsys.readouterr().err.splitlines()
    assert told.startswith(f"wrong.yaml:14:{column}: {message}")


@pytest.mark.parametrize(("isolation", "warned"), [("reduced", True), ("full", False)])
def test_reduced_isolation_is_told_to_who_uses_tools(
    isolation: str, warned: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "examine", lambda *_: [doctor.Finding("process", True, isolation)])
    Path("tools.yaml").write_text(GOOD.replace("agent: greeter", "tool: kb.search"))

    assert af(["validate", "good.yaml"]) == ExitCode.OK
    assert "reduced" not in capsys.readouterr().err
    assert af(["validate", "tools.yaml"]) == ExitCode.OK
    assert ("reduced" in capsys.readouterr().err) is warned


PAYING = """\
apiVersion: agentflow/v1
kind: Workflow
metadata: {name: paying, version: 1.0.0}
spec:
  planner: fsm
  fsm:
    initial_state: pay
    final_states: [pay]
    states:
      pay:
        tool: bank.pay
        retry: {max_attempts: 3}
"""
AGENTS = """\
apiVersion: agentflow/v1
kind: Agents
tools:
  bank.pay: {type: function, call: "bank:pay", effect: EFFECT}
"""
TOOL = """\
apiVersion: agentflow/v1
kind: Tool
metadata: {name: bank.pay, version: 1.0.0}
spec:
  run: {type: function, call: "bank:pay"RECONCILE}
  input: {type: object}
  output: {type: object}
  effect: at_most_once
"""


@pytest.mark.parametrize(
    ("tool", "verdict"),
    [
        (AGENTS.replace("EFFECT", "at_most_once"), ExitCode.REJECTED),
        (AGENTS.replace("EFFECT", 'at_most_once, reconcile: "bank:paid"'), ExitCode.OK),
        (AGENTS.replace("EFFECT", "idempotent"), ExitCode.OK),
        (AGENTS.replace("EFFECT", "transactional"), ExitCode.OK),
        (TOOL.replace("RECONCILE", ""), ExitCode.REJECTED),
        (TOOL.replace("RECONCILE", ', reconcile: "bank:paid"'), ExitCode.OK),
    ],
)
def test_a_rule_to_repeat_what_must_not_be_done_twice_is_a_fault(
    tool: str, verdict: ExitCode, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("paying.yaml").write_text(PAYING)
    Path("tool.yaml").write_text(tool)

    assert af(["validate", "paying.yaml", "--tools", "tool.yaml"]) == verdict

    told = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("warning")]
    if verdict == ExitCode.REJECTED:
        (line,) = told
        assert line.startswith("paying.yaml:12:16: `bank.pay` is called once at most, so it is never tried again.")
        assert "Remove `retry`, give the tool a `reconcile`" in line
    else:
        assert told == []
