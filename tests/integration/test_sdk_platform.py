"""The SDK and the commands of `af` against a whole platform of real processes."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from agentflow.cli.main import af
from agentflow.devstack.platform import EmbeddedPlatform, embedded_platform
from agentflow.process_exit import ExitCode
from agentflow.sdk import Client

AGENTS = """
apiVersion: agentflow/v1
kind: Agents
agents:
  greeter: {type: function, call: "greeting_agents:greet"}
  grump: {type: function, call: "greeting_agents:refuse"}
"""

FUNCTIONS = """
def greet(given):
    return {"greeting": f"hello {given['name']}"}

def refuse(given):
    raise ValueError("not today")
"""

GREETING = """
apiVersion: agentflow/v1
kind: Workflow
metadata: {name: greeting, version: 1.0.0}
spec:
  planner: fsm
  input: {type: object, required: [name], properties: {name: {type: string}}}
  fsm:
    initial_state: greet
    final_states: [greet]
    states:
      greet: {agent: greeter, input: {name: "${input.name}"}}
"""

REFUSAL = GREETING.replace("greeting,", "refusal,").replace("agent: greeter", "agent: grump")


def agents_in(directory: Path) -> Path:
    (directory / "greeting_agents.py").write_text(FUNCTIONS)
    (directory / "agents.yaml").write_text(AGENTS)
    return directory / "agents.yaml"


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedPlatform]:
    """One for the module; its supervision stands still between start and stop, its processes do not."""
    home = tmp_path_factory.mktemp("platform")
    with asyncio.Runner() as runner:
        running = embedded_platform(home / "home", agents_file=agents_in(home))
        yield runner.run(running.__aenter__())
        runner.run(running.__aexit__(None, None, None))


@pytest.fixture
def workflows(platform: EmbeddedPlatform, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where we are: a directory with the definitions, and `af` told where the platform is."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AF_API_URL", platform.api_url)
    monkeypatch.setenv("AF_API_KEY", platform.api_key)
    (tmp_path / "greeting.yaml").write_text(GREETING)
    (tmp_path / "refusal.yaml").write_text(REFUSAL)
    return tmp_path


@pytest.fixture
def pushed(workflows: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert af(["workflow", "push", "greeting.yaml", "refusal.yaml"]) == ExitCode.OK
    capsys.readouterr()


def test_pushing_the_same_content_again_changes_nothing(pushed: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert af(["workflow", "push", "greeting.yaml"]) == ExitCode.OK

    assert capsys.readouterr().out.startswith("unchanged greeting 1.0.0")


def test_other_content_under_the_same_version_is_a_conflict(pushed: None, capsys: pytest.CaptureFixture[str]) -> None:
    Path("other.yaml").write_text(GREETING.replace("[name]", "[]"))

    assert af(["workflow", "push", "other.yaml"]) == ExitCode.REJECTED
    assert "greeting" in capsys.readouterr().err


def test_a_faulty_definition_is_refused_with_its_file_and_every_place(
    workflows: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("bad.yaml").write_text(GREETING.replace("initial_state: greet", "initial_state: gret"))

    assert af(["workflow", "push", "bad.yaml"]) == ExitCode.REJECTED

    told = capsys.readouterr().err
    assert "bad.yaml" in told
    assert "\n  9:" in told
    assert "Traceback" not in told


def test_a_workflow_is_listed_and_shown_with_its_source(pushed: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert af(["workflow", "list", "--name", "greeting", "--json"]) == ExitCode.OK
    assert [item["name"] for item in json.loads(capsys.readouterr().out)["items"]] == ["greeting"]

    assert af(["workflow", "list"]) == ExitCode.OK
    assert "greeting" in capsys.readouterr().out

    assert af(["workflow", "show", "greeting@1.0.0"]) == ExitCode.OK
    assert "initial_state: greet" in capsys.readouterr().out


def test_running_shows_each_step_on_stderr_and_the_output_on_stdout(
    pushed: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert af(["run", "greeting", "name=Mara"]) == ExitCode.OK

    captured = capsys.readouterr()
    assert json.loads(captured.out) == {"greeting": "hello Mara"}
    assert "✓ greet" in captured.err
    assert "greeter" in captured.err


def test_running_for_a_program_prints_the_whole_execution_and_nothing_else(
    pushed: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert af(["run", "greeting", "--input", '{"name": "Mara"}', "--json"]) == ExitCode.OK

    captured = capsys.readouterr()
    assert json.loads(captured.out)["output"] == {"greeting": "hello Mara"}
    assert captured.err == ""


def test_an_execution_that_fails_ends_with_4_and_says_why(pushed: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert af(["run", "refusal", "name=Mara"]) == ExitCode.EXECUTION_FAILED

    captured = capsys.readouterr()
    assert captured.out == ""
    assert "✗ greet" in captured.err
    assert "not today" in captured.err
    assert "af executions show exec_" in captured.err


def test_an_unknown_workflow_and_a_wrong_input_end_with_2(pushed: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert af(["run", "nosuch"]) == ExitCode.REJECTED
    assert "nosuch" in capsys.readouterr().err

    assert af(["run", "greeting", "name=3"]) == ExitCode.REJECTED
    assert "name" in capsys.readouterr().err


def test_a_detached_execution_can_be_looked_at_later(pushed: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert af(["run", "greeting", "name=Mara", "--detach"]) == ExitCode.OK
    execution = capsys.readouterr().out.strip()
    assert execution.startswith("exec_")

    asyncio.run(followed(execution))

    assert af(["executions", "show", execution, "--events", "--json"]) == ExitCode.OK
    told = json.loads(capsys.readouterr().out)
    assert told["execution"]["status"] == "completed"
    assert [event["type"] for event in told["events"]] == [
        "execution.started.v1",
        "step.scheduled.v1",
        "step.succeeded.v1",
        "execution.completed.v1",
    ]

    assert af(["executions", "show", execution, "--events"]) == ExitCode.OK
    assert "step.succeeded.v1" in capsys.readouterr().out

    assert af(["executions", "--workflow", "greeting", "--status", "completed"]) == ExitCode.OK
    assert execution in capsys.readouterr().out


async def followed(execution: str) -> None:
    from agentflow.cli.connection import control_plane

    async with control_plane() as api:
        _ = [event async for event in api.follow(execution)]


@pytest.mark.parametrize("command", [["executions", "show", "exec_nosuch"], ["workflow", "show", "nosuch"]])
def test_what_does_not_exist_ends_with_2(
    workflows: Path, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert af(command) == ExitCode.REJECTED
    assert command[-1] in capsys.readouterr().err


def test_a_status_that_does_not_exist_is_refused(workflows: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert af(["executions", "list", "--status", "dreaming"]) == ExitCode.REJECTED
    assert "status" in capsys.readouterr().err


@pytest.fixture
async def own_platform(tmp_path: Path) -> AsyncIterator[EmbeddedPlatform]:
    async with embedded_platform(tmp_path / "home", agents_file=agents_in(tmp_path)) as platform:
        yield platform


async def test_following_outlives_a_control_plane_that_is_killed(own_platform: EmbeddedPlatform) -> None:
    async with Client(own_platform.api_url, api_key=own_platform.api_key) as api:
        await api.push_workflow(GREETING)
        own_platform.worker.process.kill()  # so that the execution cannot end before the control plane is gone
        started = await api.execute("greeting", {"name": "Mara"})
        own_platform.control_plane.process.kill()

        seen = [(event.version, event.type) async for event in api.follow(started.execution_id)]

        ended = await api.execution(started.execution_id)
    assert [version for version, _ in seen] == list(
        range(1, ended.version + 1)
    )  # the killed worker may cost an attempt
    assert seen[-1][1] == "execution.completed.v1"
    assert ended.output == {"greeting": "hello Mara"}
