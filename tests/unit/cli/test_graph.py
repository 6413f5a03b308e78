"""`af workflow graph` with the real planners, in a process of their own as always."""

import io
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from agentflow.cli.main import af
from agentflow.process_exit import ExitCode

TREE = """\
apiVersion: agentflow/v1
kind: Workflow
metadata: {name: greeting, version: 1.0.0}
spec:
  planner: behavior_tree
  tree:
    retry: {attempts: 2, do: {action: {name: greet, agent: greeter}}}
"""


@pytest.fixture(autouse=True)
def _definition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("tree.yaml").write_text(TREE)


def test_a_plan_is_drawn_for_mermaid(capsys: pytest.CaptureFixture[str]) -> None:
    assert af(["workflow", "graph", "tree.yaml"]) == ExitCode.OK
    assert capsys.readouterr().out.splitlines() == [
        "flowchart TD",
        '  n0("retry up to 2")',
        '  n1["greet: greeter"]',
        "  n0 --> n1",
    ]


@pytest.mark.parametrize("option", [["--format", "json"], ["--json"]])
def test_a_plan_is_written_as_json_with_its_hash_and_its_shape(option, capsys: pytest.CaptureFixture[str]) -> None:
    assert af(["workflow", "graph", "tree.yaml", *option]) == ExitCode.OK

    plan = json.loads(capsys.readouterr().out)
    assert (plan["planner"], len(plan["plan_hash"])) == ("behavior_tree", 64)
    assert plan["shape"] == {"min": 1, "max": 2, "steps": [{"name": "greet", "min": 1, "max": 2}]}


def test_a_dash_reads_stdin(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(TREE.encode())))

    assert af(["workflow", "graph", "-"]) == ExitCode.OK
    assert capsys.readouterr().out.startswith("flowchart TD")


def test_what_is_wrong_is_told_instead_of_drawn(capsys: pytest.CaptureFixture[str]) -> None:
    Path("tree.yaml").write_text(TREE.replace("attempts", "atempts"))

    assert af(["workflow", "graph", "tree.yaml"]) == ExitCode.REJECTED
    told = capsys.readouterr()
    assert told.out == ""
    assert "tree.yaml:7:13: `atempts` is not a key" in told.err


def test_a_file_that_is_not_there_is_no_name_of_a_workflow(capsys: pytest.CaptureFixture[str]) -> None:
    assert af(["workflow", "graph", "no/such.yaml"]) == ExitCode.REJECTED
    assert "no/such.yaml cannot be read" in capsys.readouterr().err
