import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.main import get_command

from agentflow.cli import bundled, demo, main
from agentflow.cli.output import print_table


def leaves(command: object, name: str = "af") -> Iterator[tuple[str, object]]:
    children = getattr(command, "commands", {})
    yield name, command
    for word, child in children.items():
        yield from leaves(child, f"{name} {word}")


COMMANDS = dict(leaves(get_command(main.app)))


# What only gathers commands: their own help shows the examples.
_IDENTITY = {
    "audit": ("checkpoint", "export", "list", "verify"),
    "budgets": ("create", "delete", "list", "show", "update"),
    "bus": ("users",),
    "certs": ("init",),
    "users": ("add", "list", "set"),
    "service-accounts": ("add", "list"),
    "roles": ("add", "list", "remove"),
    "api-keys": ("add", "list", "revoke"),
    "tenants": ("add", "list", "set", "show"),
}
GROUPS = {
    "af",
    "af agents",
    "af auth",
    "af bench",
    "af db",
    "af keys",
    "af retention",
    "af schedule",
    "af snapshot",
    "af storage",
    "af tasks",
    "af tool",
    "af workflow",
}
GROUPS |= {f"af {noun}" for noun in _IDENTITY}
_ORDERS = ("answer", "cancel", "pause", "resume", "retry", "signal", "terminate", "vars")


def test_the_commands_are_those_people_were_promised() -> None:
    assert set(COMMANDS) == {
        "af",
        "af agents",
        "af agents list",
        "af agents show",
        *(f"af {noun}" for noun in _IDENTITY),
        *(f"af {noun} {word}" for noun, words in _IDENTITY.items() for word in words),
        "af auth",
        *(f"af auth {word}" for word in ("login", "logout", "whoami")),
        "af bench",
        "af bench sandbox",
        "af db",
        *(f"af db {task}" for task in ("check", "current", "downgrade", "rebuild", "upgrade")),
        "af demo",
        "af deploy",
        "af demo support",
        "af costs",
        "af dev",
        "af doctor",
        "af executions",
        *(f"af executions {order}" for order in _ORDERS),
        *(f"af executions {look}" for look in ("break", "explain", "fork", "ticks", "trace")),
        "af executions list",
        "af executions show",
        "af limits",
        "af migrate",
        "af keys",
        "af keys new",
        "af keys rekey",
        "af db rekey",
        "af replay",
        "af retention",
        "af retention plan",
        "af retention run",
        "af run",
        "af schedule",
        *(f"af schedule {word}" for word in ("create", "delete", "list", "pause", "resume", "show", "trigger")),
        "af server",
        "af status",
        "af snapshot",
        *(f"af snapshot {word}" for word in ("delete", "export", "list", "show", "take", "verify")),
        "af storage",
        "af storage report",
        "af tasks",
        "af tasks list",
        "af tool",
        *(f"af tool {word}" for word in ("allow", "list", "push", "show", "test")),
        "af validate",
        "af version",
        "af worker",
        "af workflow",
        "af workflow estimate",
        "af workflow graph",
        "af workflow import",
        "af workflow list",
        "af workflow push",
        "af workflow show",
    }


@pytest.mark.parametrize("name", sorted(COMMANDS.keys() - GROUPS))
def test_the_help_of_every_command_has_examples_that_name_it(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.af([*name.split()[1:], "--help"]) == 0

    told = capsys.readouterr().out
    assert "Examples:" in told
    assert name in told.partition("Examples:")[2]


def test_help_needs_none_of_the_heavy_libraries() -> None:
    import subprocess
    import sys

    heavy = ("aiohttp", "httpx", "nats", "pydantic", "yaml", "structlog", "rich.table")
    code = f"import sys, agentflow.cli.main; print([name for name in {heavy!r} if name in sys.modules])"

    seen = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert seen.stdout.strip() == "[]"


def test_completion_knows_the_commands(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("_AF_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "af exec")
    monkeypatch.setenv("COMP_CWORD", "1")

    main.af([])

    assert "executions" in capsys.readouterr().out


def test_the_version_is_printed_for_people_and_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.af(["version"]) == 0
    assert capsys.readouterr().out.startswith("agentflow ")

    assert main.af(["version", "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)) == {"agentflow", "python"}


def test_the_demos_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.af(["demo", "--json"]) == 0

    assert [entry["name"] for entry in json.loads(capsys.readouterr().out)] == ["support"]


def test_a_table_cuts_nothing_however_narrow_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "20")

    print_table(("ID", "STATUS"), [("exec_01JD3ZJ4W3E5V8Q2N7M0K1T9XA", "completed"), ("exec_1", "[bold]")])

    assert capsys.readouterr().out.splitlines() == [
        "ID                               STATUS",
        "exec_01JD3ZJ4W3E5V8Q2N7M0K1T9XA  completed",
        "exec_1                           [bold]",
    ]


def test_a_service_whose_packages_are_missing_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "fastapi" else found(name))

    assert main.af(["server"]) == 2

    told = capsys.readouterr().err
    assert "(fastapi)" in told
    assert "pip install 'agentflow[server]'" in told


def test_af_worker_becomes_the_worker_with_the_agents_it_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    became: list[tuple[list[str], dict[str, str]]] = []
    monkeypatch.setattr("os.execve", lambda _path, argv, environment: became.append((argv, environment)))
    monkeypatch.setenv("AF_SHARDS", "4")

    assert main.af(["worker", "--agents", "mine.yaml"]) == 0

    ((argv, environment),) = became
    assert argv[1:] == ["-m", "worker"]
    assert (environment["AF_AGENTS_FILE"], environment["AF_SHARDS"]) == ("mine.yaml", "4")


def test_a_wrong_setting_is_told_before_becoming_a_service(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("os.execve", lambda *_: pytest.fail("must not start"))
    monkeypatch.setenv("AF_HTTP_LISTEN", "0.0.0.0:80")

    assert main.af(["server"]) == 2
    assert "no TLS" in capsys.readouterr().err


def test_a_file_that_is_not_there_is_told_before_anything_is_pushed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.af(["workflow", "push", "no/such.yaml"]) == 2
    assert "no/such.yaml cannot be read" in capsys.readouterr().err


def test_agents_that_are_not_there_are_told_before_anything_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    assert main.af(["dev", "--agents", "no/such.yaml"]) == 2

    assert "no/such.yaml cannot be read" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_an_installation_without_its_templates_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundled.agentflow, "__file__", str(tmp_path / "agentflow" / "__init__.py"))

    with pytest.raises(bundled.TemplateMissing):
        bundled.template("support")


def test_templates_inside_an_installed_package_are_found_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inside = tmp_path / "agentflow" / "templates" / "support"
    inside.mkdir(parents=True)
    (inside / "workflow.yaml").touch()
    monkeypatch.setattr(bundled.agentflow, "__file__", str(tmp_path / "agentflow" / "__init__.py"))

    assert bundled.template("support") == inside


def test_a_new_demo_removes_what_the_last_one_left(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "worker.log").touch()
    (tmp_path / "agentflow.db").touch()

    demo._make_room(tmp_path)

    assert [entry.name for entry in tmp_path.iterdir()] == ["lock"]


def test_a_demo_that_is_still_at_work_is_not_removed(tmp_path: Path) -> None:
    from agentflow.devstack.home import HomeInUse, locked_home

    (tmp_path / "agentflow.db").touch()

    with locked_home(tmp_path), pytest.raises(HomeInUse):
        demo._make_room(tmp_path)

    assert (tmp_path / "agentflow.db").exists()
