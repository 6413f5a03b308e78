"""A workspace belongs to its execution: verified before each call, kept after it, or no call begins."""

import asyncio
import json
import os
import shutil
import tarfile
from io import BytesIO
from pathlib import Path

import msgspec
import pytest

from agentflow import limits
from agentflow.artifacts.opening import open_artifacts
from agentflow.clock import SystemClock
from agentflow.contracts.agent_state import StateRef
from agentflow.contracts.step import StepRequest
from agentflow.contracts.tool_questions import ToolTest
from agentflow.contracts.tool_records import CallSite
from agentflow.contracts.workspace import WorkspaceLeft
from agentflow.ports import Shelf
from agentflow.testing import eventually
from sandbox.policy import MIB
from sandbox.runner import Sandboxes
from sandbox.workspace import digest
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
        self.left = []  # what each call left, as its step tells it

    @property
    def folder(self):
        (found,) = (path for path in (self.home / "default" / "exec_1").iterdir() if path.is_dir())
        return found

    async def script(self, script: str, *, tool: str = "shell.run", workflow: str = "flow", known=None):
        given = {"script": script, "in_workspace": True} if tool == "shell.run" else {"code": script}
        request = StepRequest("exec_1", workflow, 0, "step", "step", 1, given, 30_000, "key", tool)
        context = StepContext("exec_1", "step", 1, "key", 0, left=self.left)
        return await self.tools.run(msgspec.structs.replace(request, workspace=known), context)

    async def said(self, script: str, *, known=None) -> str:
        return (await self.script(script, known=known))["stdout"]


@pytest.fixture
async def machine(tmp_path):
    made = []
    shared = Ledger()

    async def new(name: str, *, bytes_max: int = 16 * MIB, ledger: Ledger | None = None) -> Machine:
        kept, home = Kept(), tmp_path / name / "workspaces"
        ledger = ledger or Ledger(memory=shared.memory, worker=name)
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


async def test_every_version_that_was_left_can_be_begun_with_where_nothing_else_is_known(machine):
    """As a fork does, whose own ledger is still empty."""
    one = await machine("one")
    for line in ("first", "second", "third"):
        await one.script(f"echo {line} >> log; mkdir {line}")
    await one.script("rm -r first; echo anew > log")

    for known, log in zip(one.left, ("first", "first second", "first second third", "anew"), strict=True):
        other = await machine(f"of {known.number}", ledger=Ledger())
        assert (await other.said("cat log", known=known)).split() == log.split()
        assert other.left[-1] == known, "looking left the same version"
        assert digest(str(other.folder)) == known.digest


async def test_a_version_on_record_that_is_not_there_stops_the_step_before_the_tool_acts(machine, tmp_path):
    one = await machine("one")
    await one.script("echo kept > a")
    ahead = msgspec.structs.replace(one.left[-1], number=2, digest="d" * 64)
    behind = await fault(one.script("echo acted > acted", known=ahead))
    assert (behind.code, (one.folder / "acted").exists()) == ("workspace_diverged", False)
    assert await one.said("ls", known=one.left[-1]) == "a\n"

    shutil.rmtree(tmp_path / "artifacts" / "default")
    other = await machine("other", ledger=Ledger())
    lost = await fault(other.script("echo acted > acted", known=one.left[-1]))
    assert lost.code == "workspace_diverged"


async def test_a_workspace_from_before_there_were_sheets_is_taken_up(machine, tmp_path):
    one = await machine("one")
    old = tmp_path / "old"
    old.mkdir()
    (old / "a").write_text("of the release before\n")
    archive = BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as made:
        made.add(old / "a", "a")
    store = await open_artifacts(f"file://{tmp_path / 'artifacts'}")
    ref = await store.put(Shelf("default", "exec_1"), archive.getvalue())
    before = msgspec.msgpack.encode({"digest": digest(str(old)), "archive": msgspec.to_builtins(ref)})
    key = StateRef("default", "tools", "exec_1")
    claimed = await one.ledger.claim(key, within_s=1)
    await one.ledger.save(key, claimed.version, before, "step", release=True, within_s=1)

    assert await one.said("cat a; echo more >> a") == "of the release before\n"
    assert await (await machine("other")).said("cat a") == "of the release before\nmore\n"


class Directly:
    """Calls without a sandbox: what happens in the folder is done here."""

    def __init__(self, tmp_path, store) -> None:
        self.store, self.artifacts, self.known = store, tmp_path / "artifacts", None
        self.workspaces = Workspaces(tmp_path / "home", ledger=Ledger(), store=store, clock=SystemClock())

    async def call(self, act) -> WorkspaceLeft:
        async with self.workspaces.opened(CallSite("default", "exec_1", "s", 1, "t"), within_s=10) as workspace:
            act(workspace.path)
        return workspace.left

    def shelves(self) -> dict[str, int]:
        folders = sorted((self.artifacts / "default").iterdir())
        return {folder.name: sum(file.stat().st_size for file in folder.iterdir()) for folder in folders}


@pytest.fixture
async def directly(tmp_path) -> Directly:
    return Directly(tmp_path, await open_artifacts(f"file://{tmp_path / 'artifacts'}"))


@pytest.mark.parametrize("how", ["a file more each time", "one file that grows"])
async def test_what_versions_take_grows_with_what_changes_and_not_with_what_there_is(directly, how):
    """UA-1 c has 30 KB a step: here, too, where 10 KB of files are added by each."""
    calls = 250

    def adding(number: int):
        def act(folder: str) -> None:
            name = f"{number}" if how == "a file more each time" else "log"
            with Path(folder, name).open("ab") as file:
                file.write(os.urandom(10_000))

        return act

    for number in range(calls):
        left = await directly.call(adding(number))

    assert left.number == calls
    assert sum(directly.shelves().values()) <= 30_000 * calls


async def test_a_version_whose_sheets_have_outgrown_it_begins_anew(directly, monkeypatch):
    monkeypatch.setattr(limits, "WORKSPACE_SHEETS_BYTES_MIN", 0)

    def rewriting(folder: str) -> None:
        Path(folder, "data").write_bytes(os.urandom(100_000))

    depths = [(await directly.call(rewriting)).sheets for _ in range(6)]

    assert depths == [1, 2, 1, 2, 1, 2]
    monkeypatch.setattr(limits, "WORKSPACE_SHEETS_MAX", 2)
    monkeypatch.setattr(limits, "WORKSPACE_SHEETS_BYTES_MIN", 10_000_000)
    assert [(await directly.call(rewriting)).sheets for _ in range(3)] == [1, 2, 1]


async def test_two_shelves_of_versions_are_kept_and_the_newest_are_on_them(directly, monkeypatch, tmp_path):
    monkeypatch.setattr(limits, "WORKSPACE_SHELF_BYTES_MAX", 300_000)

    def writing(number: int):
        return lambda folder: Path(folder, "data").write_bytes(os.urandom(99_000) + bytes([number]))

    lefts = []
    for number in range(12):
        lefts.append(await directly.call(writing(number)))
        assert len(directly.shelves()) <= 2
        assert sum(directly.shelves().values()) <= 2 * 310_000

    assert [left.shelf for left in lefts] == [1] * 3 + [2] * 3 + [3] * 3 + [4] * 3
    for known in lefts[-6:]:
        other = Workspaces(tmp_path / f"{known.number}", ledger=Ledger(), store=directly.store, clock=SystemClock())
        site = CallSite("default", "exec_1", "s", 1, "t")
        async with other.opened(site, within_s=10, known=known) as workspace:
            data = await asyncio.to_thread(Path(workspace.path, "data").read_bytes)
        assert data[-1] == known.number - 1
