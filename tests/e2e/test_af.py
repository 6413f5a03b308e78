"""`af` as a person uses it: real processes, real output, exit codes that scripts rely on."""

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from agentflow.devstack.home import locked_home
from agentflow.settings import inherited_environment
from agentflow.testing import eventually

AF = Path(sys.executable).with_name("af")
ROOT = Path(__file__).parents[2]


def af(*arguments: str | Path, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [AF, *arguments],
        cwd=cwd,
        env={**inherited_environment(), **env},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def left_behind(directory: Path) -> list[str]:
    """Command lines of processes that still work in or for a directory."""
    found = []
    for process in psutil.process_iter(["cmdline", "cwd"]):
        about = " ".join([*(process.info["cmdline"] or ()), process.info["cwd"] or ""])
        if str(directory) in about:
            found.append(about)
    return found


def refused(result: subprocess.CompletedProcess[str]) -> str:
    """What a person reads when the input was bad: exit code 2, one message with a hint, no trace."""
    assert result.returncode == 2, result.stdout + result.stderr
    assert "Traceback" not in result.stderr + result.stdout
    return result.stderr + result.stdout


def test_the_demo_takes_three_tickets_down_three_paths_and_leaves_nothing_running(tmp_path):
    result = af("demo", "support", cwd=tmp_path)

    assert result.returncode == 0, result.stdout + result.stderr
    assert "no model and no network" in result.stdout
    paths = re.findall(r"✓ (\w+)", result.stdout)
    assert paths == [
        "classify",
        "knowledge_search",
        "respond",
        "classify",
        "escalate",
        "classify",
        "knowledge_search",
        "escalate",
    ]
    assert "agentflow.db" in result.stdout
    assert [entry.name for entry in tmp_path.iterdir()] == [".agentflow"]
    assert left_behind(tmp_path) == []


async def test_dev_runs_everything_until_ctrl_c(tmp_path):
    log = tmp_path / "dev.log"
    with log.open("w") as output:
        dev = subprocess.Popen(  # noqa: ASYNC220 - it only starts here; everything else waits without blocking
            [AF, "dev", "--port", "0"],
            cwd=tmp_path,
            env=inherited_environment(),
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        await eventually(lambda: "Executions appear here" in log.read_text() or dev.poll() is not None, within_s=30)
        found = re.search(r"AF_API_URL=(\S+)", log.read_text())
        assert found, log.read_text()
        here = {"cwd": tmp_path, "AF_API_URL": found[1]}

        pushed = af("workflow", "push", ROOT / "templates" / "support" / "workflow.yaml", **here)
        assert (pushed.returncode, "support" in pushed.stdout) == (0, True)
        ticket = {"ticket": "I forgot my password and the reset link has expired.", "customer": "Mara"}
        ran = af("run", "support", "--input", json.dumps(ticket), **here)
        assert ran.returncode == 0, ran.stderr
        assert "✓ classify" in ran.stdout + ran.stderr
        listed = json.loads(af("executions", "list", "--json", **here).stdout)
        assert [item["status"] for item in listed["items"]] == ["completed"]
        shown = af("executions", "show", listed["items"][0]["id"], "--events", **here)
        assert "execution.completed" in shown.stdout
        await eventually(lambda: "✓ respond" in log.read_text(), within_s=5)

        (tmp_path / "long.json").write_text(json.dumps({"ticket": "password " * 40_000, "customer": "Mara"}))
        assert af("run", "support", "--input", f"@{tmp_path / 'long.json'}", **here).returncode == 0
        await eventually(lambda: "the execution: `input` has 352 KB" in log.read_text(), within_s=5)
        assert "classify: `input` has 352 KB" in log.read_text()

        assert "ticket" in refused(af("run", "support", "--input", '{"customer": "x"}', **here))
        assert "suport" in refused(af("run", "suport", "--input", "{}", **here))
        assert "JSON" in refused(af("run", "support", "--input", "{oops", **here))
    finally:
        dev.send_signal(signal.SIGINT)
        code = dev.wait(30)
    assert code == 0, log.read_text()
    assert "stopped" in log.read_text()
    assert left_behind(tmp_path) == []


def test_validate_names_file_line_and_column_of_every_problem(tmp_path):
    good = (ROOT / "templates" / "support" / "workflow.yaml").read_text()
    (tmp_path / "good.yaml").write_text(good)
    (tmp_path / "bad.yaml").write_text(good.replace("to: escalate}", "to: escalat}").replace(">= 0.6", ">="))

    assert af("validate", "good.yaml", cwd=tmp_path).returncode == 0
    told = refused(af("validate", "bad.yaml", cwd=tmp_path))

    assert len(re.findall(r"^bad\.yaml:\d+:\d+: ", told, re.MULTILINE)) >= 3
    assert "escalate" in told


@pytest.mark.parametrize(
    ("arguments", "env", "named"),
    [
        (["executions"], {"AF_NATS_ULR": "nats://x:4222"}, "AF_NATS_URL"),
        (["server"], {"AF_HTTP_LISTEN": "0.0.0.0:80"}, "AF_HTTP_LISTEN"),
        (["worker", "--agents", "missing.yaml"], {}, "missing.yaml"),
        (["validate", "missing.yaml"], {}, "missing.yaml"),
        (["dev", "--agents", "broken.yaml", "--port", "0"], {}, "broken.yaml"),
    ],
)
def test_bad_configuration_is_named_with_what_to_do(tmp_path, arguments, env, named):
    (tmp_path / "broken.yaml").write_text("apiVersion: agentflow/v1\nkind: Agents\nagents:\n  a: {tpe: function}\n")

    assert named in refused(af(*arguments, cwd=tmp_path, **env))
    assert left_behind(tmp_path) == []


def test_a_control_plane_that_is_away_is_said_so_with_exit_code_3(tmp_path):
    result = af("executions", "list", cwd=tmp_path, AF_API_URL="http://127.0.0.1:9")

    assert result.returncode == 3
    assert "af dev" in result.stderr


def test_two_platforms_cannot_share_one_home(tmp_path):
    with locked_home(tmp_path / ".agentflow"):
        told = refused(af("dev", "--port", "0", cwd=tmp_path))

    assert "try:" in told
