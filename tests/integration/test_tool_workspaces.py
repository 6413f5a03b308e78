"""A workspace belongs to its execution: verified before each call, kept after it, or no call begins."""

import asyncio
import json
import shutil

import pytest

from agentflow.artifacts.opening import open_artifacts
from agentflow.clock import SystemClock
from agentflow.contracts.step import StepRequest
from agentflow.contracts.tool_questions import ToolTest
from agentflow.testing import eventually
from sandbox.policy import MIB
from sandbox.runner import Sandboxes
from tests.integration.test_worker_tools import Granted, Kept, fault
from tests.ledger import Ledger
from worker.agents.agent import StepContext
from worker.agents_file import parse_agents
from worker.tools.authorities import PolicyFile
from worker.tools.definitions import Definitions
from worker.tools.opening import open_egress, open_tools
from worker.tools.workspaces import Workspaces

FILE = """
apiVersion: agentflow/v1
kind: Agents
tools:
  shell.run: {type: builtin, permissions: [fs.workspace]}
  python.run: {type: builtin, permissions: [fs.workspace]}
registered_tools: {}
policy:
  roles:
    hasty: {workflows: [hasty], allow: ["*"], ceilings: {timeout: 800ms}}
    other: {workflows: ["*"], allow: ["*"]}
"""


class Machine:
    """A worker with a disk of its own; the ledger and the artifact store are everybody's."""

    def __init__(self, tools, kept, home, ledger) -> None:
        self.tools, self.kept, self.home, self.ledger = tools, kept, home, ledger

    @property
    def folder(self):
        (found,) = (path for path in (self.home / "default" / "exec_1").iterdir() if path.is_dir())
        return found

    async def script(self, script: str, *, tool: str = "shell.run", workflow: str = "flow"):
        given = {"script": script, "in_workspace": True} if tool == "shell.run" else {"code": script}
        request = StepRequest("exec_1", workflow, 0, "step", "step", 1, given, 30_000, "key", tool)
        return await self.tools.run(request, StepContext("exec_1", "step", 1, "key", 0))

    async def said(self, script: str) -> str:
        return (await self.script(script))["stdout"]


@pytest.fixture
async def machine(tmp_path):
    made = []
    shared = Ledger()

    async def new(name: str, *, bytes_max: int = 16 * MIB) -> Machine:
        kept, home = Kept(), tmp_path / name / "workspaces"
        ledger = Ledger(memory=shared.memory, worker=name)
        ledger.lost.add("crashed")
        file = parse_agents(FILE, tmp_path / "agents.yaml")
        store = await open_artifacts(f"file://{tmp_path / 'artifacts'}")
        tools = open_tools(
            file.tools, registered=file.registered_tools, folder=str(tmp_path), sandboxes=Sandboxes("process"),
            authorities=PolicyFile(file.policy), records=kept.records, definitions=Definitions("default"),
            clock=SystemClock(), claims=Granted(),
            egress=open_egress(private="", secrets=None, records=kept.records),
            workspaces=Workspaces(home, ledger=ledger, store=store, clock=SystemClock(), bytes_max=bytes_max),
        )  # fmt: skip
        made.append(tools)
        return Machine(tools, kept, home, ledger)

    yield new
    for tools in made:
        await tools.close()


async def test_the_next_call_finds_what_the_last_one_left_also_on_another_worker(machine):
    one, other = await machine("one"), await machine("other")
    await one.script("mkdir src; echo first > src/a; ln -s src/a link; chmod +x src/a")
    await other.script("echo second >> src/a")

    assert await one.said("cat link; test -x src/a && echo runs") == "first\nsecond\nruns\n"
    digests = [call.workspace_digest for call in (*one.kept.calls, *other.kept.calls)]
    assert all(len(digest) == 64 for digest in digests)
    assert digests[1] == digests[2], "reading changed nothing"


@pytest.mark.parametrize("loss", ["a folder dropped", "a file changed", "a file added"])
async def test_a_workspace_that_anybody_else_altered_stops_the_step_before_the_tool_acts(machine, loss):
    one = await machine("one")
    await one.script("mkdir src; echo kept > src/a")
    match loss:
        case "a folder dropped":
            shutil.rmtree(one.folder / "src")
        case "a file changed":
            (one.folder / "src" / "a").write_text("altered")
        case "a file added":
            (one.folder / "new").touch()

    diverged = await fault(one.script("echo acted > acted"))

    assert (diverged.code, diverged.retryable) == ("workspace_diverged", False)
    assert not (one.folder / "acted").exists()
    assert one.kept.calls[-1].fault.code == "workspace_diverged"
    assert len(one.kept.calls[-1].profile_hash) == 64


async def test_a_copy_that_is_gone_altogether_is_brought_back_and_one_that_is_lost_stops_the_step(machine, tmp_path):
    one = await machine("one")
    await one.script("echo kept > a")
    shutil.rmtree(one.home)
    assert await one.said("cat a") == "kept\n"

    shutil.rmtree(one.home)
    shutil.rmtree(tmp_path / "artifacts" / "default")
    lost = await fault(one.script("echo acted > acted"))

    assert lost.code == "workspace_diverged"
    assert "cannot be brought back" in lost.message


async def test_a_timeout_keeps_what_the_tool_left_and_holds_as_configured_after_ten_of_them(machine):
    """Never thrown away: each call goes on from what the one before it had when its time was up."""
    one = await machine("one")
    code = "import os, time\nos.chdir(os.environ['AGENTFLOW_WORKSPACE'])\nopen('log', 'a').write('x')\ntime.sleep(60)"
    for _ in range(10):
        late = await fault(one.script(code, tool="python.run", workflow="hasty"))
        assert (late.code, late.message) == ("tool_timeout", "The tool ran longer than 0.8 s.")

    assert await one.said("cat log") == "x" * 10
    assert len({call.workspace_digest for call in one.kept.calls[:10]}) == 10
    taken = [call.duration_ms for call in one.kept.calls[:10]]
    assert all(ms >= 800 for ms in taken), "no call was cut short"


async def test_a_step_that_is_cancelled_keeps_what_was_there(machine):
    one = await machine("one")
    running = asyncio.create_task(one.script("echo half > a; echo done > ready; sleep 60"))
    await eventually(lambda: list(one.home.glob("default/exec_1/*/ready")), within_s=10)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    assert await one.said("cat a") == "half\n"


async def test_what_a_worker_left_that_died_in_a_call_is_rolled_back(machine):
    one = await machine("one")
    await one.script("echo whole > a")
    mark = one.folder.parent / "mark"
    (one.folder / "a").write_text("half")
    (one.folder / "torn").touch()
    mark.write_text(json.dumps({"folder": one.folder.name, "left": "in use"}))

    assert await one.said("cat a; ls") == "whole\na\n"


async def test_two_steps_of_one_execution_take_turns(machine):
    one = await machine("one")
    await asyncio.gather(
        *(one.script(f"test -e busy && exit 9; touch busy; echo {n} >> log; rm busy") for n in range(4))
    )

    assert sorted((await one.said("cat log")).split()) == ["0", "1", "2", "3"]


async def test_a_worker_that_lost_its_workspace_to_another_one_does_not_overwrite_it(machine):
    one, other = await machine("crashed"), await machine("other")
    await one.script("echo first > a")
    running = asyncio.create_task(one.script("echo from the slow one > a; touch ready; sleep 1.5"))
    await eventually(lambda: list(one.home.glob("default/exec_1/*/ready")), within_s=10)
    await other.script("echo from the one that took over > a")

    late = await fault(running)

    assert (late.code, await other.said("cat a")) == ("workspace_diverged", "from the one that took over\n")


async def test_a_tool_that_fills_the_disk_by_its_workspace_is_ended_and_what_it_wrote_is_dropped(machine):
    one = await machine("one", bytes_max=4 * MIB)
    await one.script("echo kept > a")

    full = await fault(one.script("i=0; while true; do head -c 1000000 /dev/urandom > f$i; i=$((i+1)); done"))

    assert full.code == "disk_exceeded"
    assert await one.said("ls") == "a\n"
    held = await fault(one.script("head -c 6000000 /dev/urandom > big"))
    assert held.code in ("AF1413", "disk_exceeded")
    assert await one.said("ls") == "a\n"


async def test_a_tool_that_is_tried_out_leaves_nothing(machine, tmp_path):
    one = await machine("one")
    tried = await one.tools.try_out(ToolTest("default", "fs.write", {"path": "a", "content": "x"}, "1"))

    assert tried.fault is None
    assert not one.home.exists()


async def test_copies_that_nobody_used_for_long_are_removed_and_fetched_when_they_are(machine, monkeypatch):
    one = await machine("one")
    await one.script("echo kept > a")
    workspaces = one.tools._workspaces
    await workspaces.sweep()
    assert one.folder.exists()

    later_ms = SystemClock().now_ms() + 30 * 24 * 3600 * 1000
    monkeypatch.setattr(SystemClock, "now_ms", lambda _: later_ms)
    await workspaces.sweep()

    assert not list(one.home.glob("*/*"))
    assert await one.said("cat a") == "kept\n"
