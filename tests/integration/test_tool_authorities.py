"""Who may call what: role, tool, tenant and operator must agree, and every decision is on record with a profile."""

import asyncio
import shutil

import msgspec
import pytest

from agentflow.clock import SystemClock
from agentflow.contracts.step import StepRequest
from agentflow.contracts.tool_questions import ToolTest
from agentflow.errors import AgentFlowError
from sandbox.backends.daemon import DockerOptions
from sandbox.policy import PermissionNotGrantable
from sandbox.runner import Sandboxes
from tests.integration.test_worker_tools import Granted, Kept, fault, registered, workspaces_in
from worker.agents.agent import StepContext
from worker.agents_file import parse_agents
from worker.tools.authorities import PolicyFile, TwoRoles
from worker.tools.definitions import Definitions
from worker.tools.opening import open_egress, open_tools

HEAD = "apiVersion: agentflow/v1\nkind: Agents\n"
FILE = (
    HEAD
    + """
tools:
  python.run: {type: builtin}
  mine.greet: {type: function, call: "mine:greet"}
  mine.reads: {type: function, call: "mine:greet", permissions: ["fs.read:data"]}
  mine.fenced: {type: function, call: "mine:greet", sandbox: gvisor}
registered_tools: {allow: ["fs.tmp"]}
policy:
  roles:
    reader: {workflows: [reports], allow: ["fs.*"]}
    hasty: {workflows: [alarms], allow: ["fs.*"], ceilings: {timeout: 1s}}
    other: {workflows: ["*"], allow: [fs.tmp]}
  tenants:
    acme: {allow: ["*"], deny: ["fs.workspace"]}
    careful: {allow: ["*"], sandbox: docker}
"""
)


@pytest.fixture
def kept() -> Kept:
    return Kept()


@pytest.fixture
async def tools(tmp_path, kept):
    folder = tmp_path / "app"
    (folder / "data").mkdir(parents=True)
    (folder / "mine.py").write_text("def greet(input):\n    return {'hello': input}\n")
    file = parse_agents(FILE, folder / "agents.yaml")
    opened = open_tools(
        file.tools, registered=file.registered_tools, folder=str(folder),
        sandboxes=Sandboxes("process", docker=DockerOptions(f"unix://{tmp_path}/none.sock")),
        authorities=PolicyFile(file.policy),
        egress=open_egress(private="", secrets=None, records=kept.records), records=kept.records,
        definitions=Definitions("default"), workspaces=await workspaces_in(tmp_path), claims=Granted(),
        clock=SystemClock(),
    )  # fmt: skip
    yield opened
    await opened.close()


@pytest.fixture
def run(tools):
    async def call(tool, input=None, *, tenant="acme", workflow="reports", digest=None):
        request = StepRequest(
            "exec_1", workflow, 0, "step", "step", 1, input, 30_000, "key", tool, tool_digest=digest
        )  # fmt: skip
        return await tools.run(request, StepContext("exec_1", "step", 1, "key", 0, tenant=tenant, trace_id="7" * 32))

    return call


async def test_a_call_runs_where_role_tool_and_tenant_agree(run, kept):
    assert await run("mine.reads", 1) == {"hello": 1}
    assert kept.calls[0].site.trace_id == "7" * 32


async def test_a_role_withholds_what_the_tool_asks_for_and_says_so(run, kept):
    denied = await fault(run("mine.reads", workflow="billing"))

    assert denied.code == "AF1410"
    assert "is not granted by the role 'other' of the agents file" in denied.message
    assert "added to its `allow`" in denied.message
    assert len(kept.calls[0].profile_hash) == 64


async def test_a_tenants_denial_beats_every_role(run):
    assert "is forbidden by the policy for tenant 'acme'" in (await fault(run("fs.read", {"path": "."}))).message


async def test_a_tenant_that_nobody_named_is_allowed_nothing(run):
    assert await run("mine.greet", 1, tenant="stranger") == {"hello": 1}  # it needs nothing
    assert "do not name 'stranger'" in (await fault(run("mine.reads", tenant="stranger"))).message


async def test_a_registered_tool_gets_no_more_than_the_operator_allows_whatever_its_role_may(run, tools):
    digest = registered(tools, {"run": {"type": "function", "call": "mine:greet"}, "permissions": ["fs.workspace"]})

    assert "`registered_tools`" in (await fault(run("crm.lookup", digest=digest, tenant="careful"))).message


async def test_a_roles_ceiling_lowers_the_tools_timeout(run):
    late = await fault(run("python.run", {"code": "import time\nwhile True: time.sleep(1)"}, workflow="alarms"))

    assert (late.code, late.message) == ("tool_timeout", "The tool ran longer than 1 s.")


@pytest.mark.parametrize(
    ("tool", "tenant", "backend"),
    [("mine.fenced", "acme", "gvisor"), ("mine.greet", "careful", "docker")],
)
async def test_a_backend_that_is_not_there_refuses_the_call_and_nothing_weaker_runs_it(
    run, kept, monkeypatch, tool, tenant, backend
):
    monkeypatch.setattr(shutil, "which", lambda _: None)

    refused = await fault(run(tool, 1, tenant=tenant))

    assert refused.code == "AF1411"
    assert f"The sandbox backend '{backend}' is not available here" in refused.message
    assert (kept.calls[0].backend, len(kept.calls[0].profile_hash)) == (backend, 64)
    assert kept.calls[0].fault.code == "AF1411"


@pytest.mark.parametrize(
    ("run_spec", "backend"),
    [
        ({"type": "container", "image": f"x@sha256:{'0' * 64}"}, "docker"),
        ({"type": "wasm", "file": "absent.wasm"}, "wasm"),
    ],
)
async def test_what_a_tool_is_decides_where_it_can_run_at_all(run, tools, kept, run_spec, backend):
    await fault(run("crm.lookup", {}, digest=registered(tools, {"run": run_spec})))

    assert kept.calls[0].backend == backend


async def test_a_function_that_insists_on_wasm_is_refused(run, tools):
    digest = registered(tools, {"run": {"type": "function", "call": "mine:greet"}, "sandbox": "wasm"})

    assert (await fault(run("crm.lookup", 1, digest=digest))).code == "AF1412"


async def test_every_call_there_is_carries_a_profile_hash_whatever_became_of_it(run, tools, kept):
    """All ways through the agent: answered, failed, refused, ill-formed, timed out, cancelled, tried out."""
    loops = {"code": "import time\nwhile True: time.sleep(1)"}
    wrong = registered(tools, {"run": {"type": "function", "call": "mine:greet"}, "output": {"type": "array"}})
    await run("mine.greet", 1)
    for failing in (
        run("python.run", {"code": "raise ValueError"}),
        run("python.run", {"code": "import os; os._exit(3)"}),
        run("python.run", loops, workflow="alarms"),
        run("python.run", {"no": "code"}),
        run("mine.reads", workflow="billing"),
        run("mine.greet", tenant="careful"),
        run("crm.lookup", 1, digest=wrong),
    ):
        await fault(failing)
    running = asyncio.create_task(run("python.run", loops))
    await asyncio.sleep(0)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    for name in ("mine.greet", "mine.reads", "json.transform"):
        await tools.try_out(ToolTest("acme", name, {"value": 1, "template": "$"}, "1"))

    assert len(kept.calls) == 12
    assert [call.profile_hash for call in kept.calls if len(call.profile_hash) != 64] == []
    assert {call.fault.code if call.fault else "" for call in kept.calls} >= {
        "", "tool_error", "tool_crashed", "tool_timeout", "tool_input_invalid", "AF1410", "AF1411", "cancelled",
        "tool_output_invalid",
    }  # fmt: skip


async def test_a_sandbox_that_fails_in_a_way_nobody_thought_of_is_on_record_too(run, tools, kept, monkeypatch):
    await run("mine.greet", 1)

    async def broken(*_):
        raise OSError("no space left on device")

    for permitted in tools._permits.values():
        monkeypatch.setattr(permitted.sandbox, "run", broken)
    failed = await fault(run("mine.greet", 2))

    assert "no space left" in failed.message
    assert [len(call.profile_hash) for call in kept.calls] == [64, 64]


def policy(text: str) -> PolicyFile:
    return PolicyFile(parse_agents(f"{HEAD}policy: {text}\n", "agents.yaml").policy)


def test_a_policy_that_cannot_be_read_stops_the_worker_at_its_start():
    with pytest.raises(PermissionNotGrantable, match=r"network\.everything"):
        policy("{tenants: {acme: {allow: [network.everything]}}}")
    with pytest.raises(TwoRoles, match="'one' and 'two'"):
        policy("{roles: {one: {workflows: [a, b]}, two: {workflows: [b]}}}")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{rules: {}}", "`rules` is not a key of this"),
        ("{roles: {one: {allow: []}}}", "`workflows` is missing"),
        ("{roles: {one: {workflows: [a], alow: []}}}", "Did you mean `allow`"),
        ("{tenants: {acme: {ceilings: {timeot: 1s}}}}", "Did you mean `timeout`"),
        ("{tenants: {acme: {sandbox: jail}}}", "This must be 'process'"),
    ],
)
def test_what_is_wrong_with_a_policy_is_told_at_its_place(text, said):
    with pytest.raises(AgentFlowError) as caught:
        policy(text)

    assert said in str(caught.value)


def test_grants_are_the_same_object_for_the_same_caller_so_that_a_permit_is_compiled_once():
    known = policy("{roles: {one: {workflows: [a], allow: [fs.tmp]}}}")

    assert known.of("acme", "a") == known.of("other", "a")
    assert hash(known.of("acme", "a")) == hash(known.of("other", "a"))
    assert msgspec.structs.replace(known.of("acme", "b")[0], authority="").allow == ()
