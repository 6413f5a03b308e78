"""Tools as a worker runs them: found, checked, fenced, given only what was granted, and on record exactly once."""

import asyncio
import contextlib
import http.server
import json
import os
import re
import threading
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import psutil
import pytest

from agentflow.artifacts.opening import open_artifacts
from agentflow.clock import SystemClock
from agentflow.contracts.pools import SHARED
from agentflow.contracts.step import StepFault, StepRequest
from agentflow.contracts.tool_questions import ToolTest
from agentflow.contracts.tool_records import EgressRecord, ToolCallRecord
from agentflow.ids import UlidSource
from agentflow.settings import Settings
from agentflow.testing import eventually
from agentflow.tools.definition import CredentialUse
from agentflow.tools.load import builtin_tools, load_tool, tool_from_data
from sandbox.runner import Sandboxes
from tests.ledger import Ledger
from worker.agents.agent import StepContext
from worker.agents_file import parse_agents
from worker.outcome import StepFailed
from worker.tools.agent import ToolsAgent
from worker.tools.authorities import PolicyFile
from worker.tools.definitions import Definitions
from worker.tools.hosting import host
from worker.tools.opening import UnknownBuiltin, open_egress, open_tools
from worker.tools.records import ToolRecords
from worker.tools.workspaces import Workspaces
from worker.wiring import own_servers

CANARY = "canary-9c1f4e77aa"
AGENTS = """
apiVersion: agentflow/v1
kind: Agents
tools:
  kb.search: {type: builtin, permissions: ["fs.read:knowledge"]}
  python.run: {type: builtin}
  shell.run: {type: builtin, permissions: [fs.workspace]}
  http.request: {type: builtin, permissions: ["network.http:*.localhost:PORT", "network.http:localhost:PORT"]}
  mine.greet: {type: function, call: "mine:greet", environment: {LANG: C}}
registered_tools: {}
"""


class Kept:
    """Where records go in these tests: the same notes, kept in a list."""

    def __init__(self) -> None:
        clock = SystemClock()
        self.records = ToolRecords(ids=UlidSource(clock.now_ms), clock=clock, worker="wrk_1", pool=SHARED)
        self.seen: list = []
        self.records.note = self.seen.append

    @property
    def calls(self) -> list[ToolCallRecord]:
        return [record for record in self.seen if isinstance(record, ToolCallRecord)]

    @property
    def egress(self) -> list[EgressRecord]:
        return [record for record in self.seen if isinstance(record, EgressRecord)]


class Granted:
    """Grants every call, unless it was told why not."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, bool]] = []
        self.refusal: StepFault | None = None

    async def take(self, tenant, request, *, undone: bool) -> None:
        self.asked.append((request.path, undone))
        if self.refusal is not None:
            raise StepFailed(self.refusal)


class Pages(http.server.BaseHTTPRequestHandler):
    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        given = {name.lower(): value for name, value in self.headers.items()}
        if self.path == "/moved":
            self.send_response(302)
            self.send_header("Location", "http://169.254.169.254/latest")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        answer = json.dumps({"method": self.command, "path": self.path, "headers": given, "body": body}).encode()
        self.send_response(503 if self.path == "/busy" else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_GET = do_POST = do_PUT = _serve  # noqa: N815 - the library's own names

    def log_message(self, *_) -> None:
        """Quiet."""


@pytest.fixture
def site():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Pages)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()


@pytest.fixture
def kept() -> Kept:
    return Kept()


async def workspaces_in(folder: Path) -> Workspaces:
    store = await open_artifacts(f"file://{folder / 'artifacts'}")
    return Workspaces(folder / "workspaces", ledger=Ledger(), store=store, clock=SystemClock())


@pytest.fixture
async def tools(tmp_path: Path, site: int, kept: Kept) -> AsyncIterator[ToolsAgent]:
    folder = tmp_path / "app"
    (folder / "knowledge").mkdir(parents=True)
    (folder / "knowledge" / "reset.md").write_text("# Reset a password\nOpen the settings and choose reset.")
    (folder / "knowledge" / "invoices.md").write_text("# Invoices\nInvoices are sent on the first of the month.")
    (folder / "mine.py").write_text(
        "def greet(input, context):\n    return {'hello': input, 'key': context.effect_key}\n"
        "def was_done(asked):\n    return {'done': True, 'output': {**asked['input'], 'key': asked['effect_key']}}\n"
        "def was_not_done(asked):\n    return {'done': False}\n"
        "def cannot_tell(asked):\n    return 'who knows'\n"
        "def breaks(asked):\n    raise RuntimeError('the ledger is away')\n"
    )
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    (secrets / "TOKEN").write_text(CANARY + "\n")
    file = parse_agents(AGENTS.replace("PORT", str(site)), folder / "agents.yaml")
    opened = open_tools(
        file.tools,
        registered=file.registered_tools,
        folder=str(folder),
        sandboxes=Sandboxes("process"),
        authorities=PolicyFile(file.policy),
        egress=open_egress(private="127.0.0.0/8,::1/128", secrets=secrets, records=kept.records),
        records=kept.records,
        definitions=Definitions("default"),
        workspaces=await workspaces_in(tmp_path),
        claims=Granted(),
        clock=SystemClock(),
    )
    yield opened
    await opened.close()


@pytest.fixture
def run(tools):
    async def call(
        tool: str, input, *, digest: str | None = None, execution: str = "exec_1", attempt: int = 1, in_doubt=False
    ):
        request = StepRequest(
            execution, "flow", 0, "step", "step", attempt, input, 30_000, f"acme/{execution}/step", tool,
            tool_digest=digest, in_doubt=in_doubt,
        )  # fmt: skip
        return await tools.run(
            request, StepContext(execution, "step", attempt, f"acme/{execution}/step", 0, tenant="acme")
        )

    return call


async def fault(awaitable) -> msgspec.Struct:
    with pytest.raises(StepFailed) as failed:
        await awaitable
    return failed.value.fault


async def test_a_function_of_the_agents_file_runs_and_gets_the_effect_key(run, kept):
    assert await run("mine.greet", 5) == {"hello": 5, "key": "acme/exec_1/step"}
    assert len(kept.calls) == 1


def declared(tools, **changes) -> None:
    tools._tools["mine.greet"] = msgspec.structs.replace(tools._tools["mine.greet"], **changes)


@pytest.mark.parametrize(
    ("effect", "asked"), [("at_most_once", [("step", False)]), ("transactional", [("step", True)])]
)
async def test_a_call_that_must_not_be_made_twice_is_claimed_before_it_is_made(run, tools, kept, effect, asked):
    declared(tools, effect=effect)

    assert (await run("mine.greet", 5))["hello"] == 5
    assert tools._claims.asked == asked
    tools._claims.refusal = StepFault("cancelled", "The call was not granted.")
    assert (await fault(run("mine.greet", 5))).code == "cancelled"
    assert len(kept.calls) == 1


async def test_an_idempotent_tool_asks_nobody(run, tools):
    await run("mine.greet", 5, attempt=3)

    assert tools._claims.asked == []


async def test_a_tool_in_doubt_is_not_called_and_says_so(run, tools, kept):
    declared(tools, effect="at_most_once")

    doubted = await fault(run("mine.greet", 5, attempt=2, in_doubt=True))

    assert (doubted.code, doubted.retryable) == ("in_doubt", False)
    assert (kept.calls, tools._claims.asked) == ([], [])
    assert (await run("mine.greet", 5, attempt=2))["hello"] == 5  # the earlier attempt had claimed nothing


@pytest.mark.parametrize(
    ("looks", "code"),
    [("was_done", None), ("was_not_done", "not_done"), ("cannot_tell", "in_doubt"), ("breaks", "in_doubt")],
)
async def test_a_tool_that_can_look_whether_it_was_called_settles_the_doubt(run, tools, looks, code):
    declared(tools, effect="at_most_once", reconcile=f"mine:{looks}")
    asked = run("mine.greet", {"order": 7}, attempt=2, in_doubt=True)

    if code is None:
        assert await asked == {"order": 7, "key": "acme/exec_1/step"}
    else:
        assert (await fault(asked)).code == code


async def test_http_request_reaches_a_granted_host_and_sends_the_effect_key(run, site, kept):
    output = await run("http.request", {"url": f"http://localhost:{site}/x", "method": "POST", "json": {"a": 1}})

    assert (output["status"], output["json"]["path"], output["json"]["body"]) == (200, "/x", '{"a": 1}')
    assert output["json"]["headers"]["idempotency-key"] == "acme/exec_1/step"
    assert [record.verdict for record in kept.egress] == ["allowed", "closed"]
    assert kept.calls[0].egress_allowed == 1


async def test_http_request_says_which_grant_is_missing_and_how_to_get_it(run, kept):
    refused = await fault(run("http.request", {"url": "https://api.example.com/v1"}))

    assert refused.code == "tool_error"
    assert "has no grant for api.example.com:443" in refused.message
    assert "`network.http:api.example.com`" in refused.message
    assert "af tool push" in refused.message
    assert [(record.verdict, record.host) for record in kept.egress] == [("denied", "api.example.com")]


async def test_a_redirect_is_followed_only_if_asked_and_judged_anew(run, site, kept):
    stayed = await run("http.request", {"url": f"http://localhost:{site}/moved"})
    led_away = await fault(run("http.request", {"url": f"http://localhost:{site}/moved", "follow_redirects": 3}))

    assert stayed["status"] == 302
    assert "no grant for 169.254.169.254:80" in led_away.message
    assert [record.host for record in kept.egress if record.verdict == "denied"] == ["169.254.169.254"]


async def test_our_own_servers_are_out_of_reach_whatever_is_granted_and_whatever_range_is_open(
    tools, run, site, kept, tmp_path
):
    """By address and port, whatever the name: here NATS is said to be where the site is."""
    nats = [("127.0.0.1", site), ("::1", site)]
    tools._egress = open_egress(private="127.0.0.0/8,::1/128", own=nats, secrets=None, records=kept.records)

    refused = await fault(run("http.request", {"url": f"http://localhost:{site}/"}))

    assert "which is AgentFlow's own" in refused.message
    assert [(record.verdict, record.reason) for record in kept.egress] == [("denied", "address_denied")]


def test_our_own_servers_are_those_of_the_settings():
    settings = Settings(
        nats_url="nats://bus.internal:4223", db_dsn="postgres://af:secret@db.internal/af", http_listen="127.0.0.1:8080",
        grpc_listen="127.0.0.1:8081", api_url="https://af.internal", docker_host="tcp://10.1.2.3:2376",
        artifacts_url="s3://bucket?endpoint=http://store.internal:9000", worker_health_listen="127.0.0.1:9100",
    )  # fmt: skip

    assert set(own_servers(settings)) == {
        ("bus.internal", 4223), ("db.internal", 5432), ("127.0.0.1", 8080), ("127.0.0.1", 8081), ("af.internal", 443),
        ("10.1.2.3", 2376), ("store.internal", 9000), ("127.0.0.1", 9100),
    }  # fmt: skip
    assert own_servers(Settings(http_listen="127.0.0.1:0", grpc_listen="127.0.0.1:0")) == [
        ("127.0.0.1", 4222), ("127.0.0.1", 8080)
    ]  # fmt: skip


async def test_python_runs_and_answers(run):
    output = await run("python.run", {"code": "print('hi')\noutput = sum(input)", "input": [1, 2, 3]})

    assert output == {"output": 6, "printed": "hi\n"}


async def test_python_has_no_way_out_and_no_secret(run):
    code = """
import os, socket
found = []
for address in [("169.254.169.254", 80), ("127.0.0.1", 4222), ("93.184.216.34", 443)]:
    with socket.socket() as probe:
        probe.settimeout(1)
        try:
            probe.connect(address); found.append(address)
        except OSError:
            pass
output = [found, dict(os.environ)]
"""
    found, environment = (await run("python.run", {"code": code}))["output"]

    assert found == []
    assert CANARY not in json.dumps(environment)


async def test_a_command_answers_with_its_exit_code(run):
    output = await run("shell.run", {"script": "echo out; echo err >&2; exit 3"})

    assert output == {"exit_code": 3, "stdout": "out\n", "stderr": "err\n"}
    assert (await run("shell.run", {"argv": ["/bin/cat"], "stdin": "through"}))["stdout"] == "through"


async def test_files_of_the_workspace_stay_for_the_execution_and_for_nobody_else(run):
    written = await run("fs.write", {"path": "notes/a.txt", "content": "one"})
    await run("fs.write", {"path": "notes/a.txt", "content": "+two", "append": True})

    assert written["bytes"] == 3
    assert (await run("fs.read", {"path": "notes/a.txt"}))["content"] == "one+two"
    assert (await run("fs.read", {"path": "."}))["files"] == ["notes/a.txt"]
    assert (await run("shell.run", {"script": "cat notes/a.txt", "in_workspace": True}))["stdout"] == "one+two"
    assert (await fault(run("fs.read", {"path": "notes/a.txt"}, execution="exec_2"))).code == "tool_error"


@pytest.mark.parametrize("path", ["../secrets/TOKEN", "/etc/passwd", "a/../../x", "link/passwd"])
async def test_no_path_leads_out_of_the_workspace(run, path):
    await run("shell.run", {"script": "ln -sfn /etc link", "in_workspace": True})

    assert (await fault(run("fs.read", {"path": path}))).code == "tool_error"
    assert (await fault(run("fs.write", {"path": path, "content": "x"}))).code == "tool_error"


async def test_the_knowledge_base_is_searched(run):
    found = await run("kb.search", {"query": "How do I reset my password?"})

    assert [article["title"] for article in found["articles"]] == ["Reset a password"]
    assert found["articles"][0]["file"] == "reset.md"
    assert (await run("kb.search", {"query": "password", "min_words": 2}))["articles"] == []
    assert (await run("kb.search", {"query": 'the "of" AND ('}))["articles"] == []


async def test_json_is_transformed_by_paths(run):
    value = {"items": [{"n": 1, "tag": "a"}, {"n": 2, "tag": "b"}], "who": "Mara"}
    template = {"name": "$.who", "all": "$.items[*].n", "first": "$.items[0].tag", "none": "$.x", "cost": "$$5", "k": 1}

    output = await run("json.transform", {"value": value, "template": template})

    assert output["value"] == {"name": "Mara", "all": [1, 2], "first": "a", "none": None, "cost": "$5", "k": 1}


async def test_an_input_that_does_not_fit_never_reaches_the_tool(run, kept):
    wrong = await fault(run("http.request", {"uri": "https://x"}))

    assert wrong.code == "tool_input_invalid"
    assert '"url" is a required property' in wrong.message
    assert kept.calls[0].fault.code == "tool_input_invalid"


async def test_an_unknown_tool_is_named_with_those_there_are(run):
    assert "it has fs.read, fs.write" in (await fault(run("nothing.here", {}))).message


def registered(tools: ToolsAgent, spec: dict, name: str = "crm.lookup") -> str:
    """A definition as the control plane would answer with it, already known to this worker."""
    data = {"apiVersion": "agentflow/v1", "kind": "Tool", "metadata": {"name": name, "version": "1.2.0"}, "spec": spec}
    tool = tool_from_data(data)
    tools._definitions._kept[tool.digest] = tool
    return tool.digest


async def test_a_registered_http_tool_posts_its_input_and_checks_the_answer(run, tools, site, kept):
    digest = registered(
        tools,
        {
            "run": {"type": "http", "url": f"http://localhost:{site}/crm", "headers": {"X-Team": "support"}},
            "permissions": [f"network.http:localhost:{site}"],
            "input": {"type": "object", "required": ["id"]},
            "output": {"type": "object", "required": ["path", "body"]},
            "cost": {"dollars_per_call": 0.25},
            "effect": "at_most_once",
        },
    )

    output = await run("crm.lookup", {"id": 7}, digest=digest)

    assert (output["path"], output["body"], output["headers"]["x-team"]) == ("/crm", '{"id": 7}', "support")
    call = kept.calls[0]
    assert (call.tool_version, call.tool_digest, call.effect, call.cost_dollars) == (
        "1.2.0",
        digest,
        "at_most_once",
        0.25,
    )


async def test_an_answer_that_does_not_fit_the_schema_is_not_believed(run, tools, kept):
    spec = {"run": {"type": "function", "call": "mine:greet"}, "output": {"type": "array"}}

    wrong = await fault(run("crm.lookup", 1, digest=registered(tools, spec)))

    assert wrong.code == "tool_output_invalid"
    assert kept.calls[0].fault.code == "tool_output_invalid"


@pytest.mark.parametrize(
    "spec", [{"permissions": ["fs.read:/etc"]}, {"credentials": [{"host": "api.example.com", "secret": "TOKEN"}]}]
)
async def test_a_registered_tool_gets_no_file_and_no_secret_that_this_worker_did_not_open_to_it(run, tools, spec):
    digest = registered(tools, {"run": {"type": "function", "call": "mine:greet"}, **spec})

    denied = await fault(run("crm.lookup", 1, digest=digest))
    assert denied.code == "AF1410"
    assert "`registered_tools`" in denied.message


async def test_a_call_is_on_record_once_with_hashes_sizes_and_no_secret(run, kept):
    await run("json.transform", {"value": {"password": "hunter2", "n": 1}, "template": "$.n"})

    (call,) = kept.calls
    assert call.site.tenant_id == "acme"
    assert (call.site.execution_id, call.site.step, call.site.attempt) == ("exec_1", "step", 1)
    assert len(call.profile_hash) == len(call.input_hash) == len(call.output_hash) == 64
    assert (call.backend, call.exit_code, call.fault) == ("process", 0, None)
    assert call.input_bytes > 40
    assert call.output_bytes == len('{"value":1}')
    assert call.max_rss_bytes > 1_000_000
    assert "hunter2" not in str(call)
    assert call.arguments["value"] == {"password": "***", "n": 1}


async def test_a_call_that_is_cancelled_is_on_record_too(run, kept):
    running = asyncio.create_task(run("python.run", {"code": "import time\nwhile True: time.sleep(1)"}))
    await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    assert [call.fault.code for call in kept.calls] == ["cancelled"]


async def test_a_tool_is_tried_out_without_an_execution_and_without_network(tools, site):
    good = await tools.try_out(ToolTest("acme", "json.transform", {"value": 1, "template": "$"}, "1"))
    cut_off = await tools.try_out(ToolTest("acme", "http.request", {"url": f"http://localhost:{site}/"}, "2"))
    open_to_it = await tools.try_out(
        ToolTest("acme", "http.request", {"url": f"http://localhost:{site}/"}, "3", network=True)
    )

    assert (good.output, good.fault, len(good.profile_hash)) == ({"value": 1}, None, 64)
    assert "no way out" in cut_off.fault.message
    assert open_to_it.output["status"] == 200


async def test_a_built_in_tool_that_is_none_is_refused_when_the_worker_starts(tools, kept):
    file = parse_agents(
        "apiVersion: agentflow/v1\nkind: Agents\ntools: {no.such: {type: builtin}}\n", Path("agents.yaml")
    )
    with pytest.raises(UnknownBuiltin):
        open_tools(
            file.tools, registered=None, folder="/", sandboxes=Sandboxes("process"), egress=tools._egress,
            authorities=PolicyFile(file.policy), records=kept.records, definitions=Definitions("default"),
            workspaces=tools._workspaces, claims=Granted(), clock=SystemClock(),
        )  # fmt: skip


def test_every_built_in_tool_has_code_and_a_description():
    folder = Path("worker/tools/builtin")

    assert len(builtin_tools()) == 7
    for name, tool in builtin_tools().items():
        assert (folder / f"{name.replace('.', '_')}.py").is_file()
        assert tool.definition.metadata.description


WAITING = """
import os, time
folder = os.environ["AGENTFLOW_WORKSPACE"]
held = input
open(folder + "/ready", "w").close()
while not os.path.exists(folder + "/go"):
    time.sleep(0.01)
places = []
for top in ("/tmp", "/run", "/etc", "/workspace", os.getcwd()):
    for above, _, names in os.walk(top):
        for name in names:
            try:
                with open(os.path.join(above, name), "rb") as file:
                    places += [name] * (input["needle"][::-1].encode() in file.read(1_000_000))
            except OSError:
                pass
output = {"files": places, "environment": list(os.environ.values())}
"""


def memory_of_children(needle: bytes) -> list[int]:
    """The processes below this one that hold `needle` anywhere in their memory."""
    found = []
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(OSError, ValueError), Path(f"/proc/{child.pid}/mem").open("rb", 0) as memory:
            for line in Path(f"/proc/{child.pid}/maps").read_text().splitlines():
                start, end = (int(part, 16) for part in line.split()[0].split("-"))
                if "r" in line.split()[1] and not line.endswith(("[vvar]", "[vsyscall]", "[vvar_vclock]")):
                    with contextlib.suppress(OSError, OverflowError):
                        memory.seek(start)
                        found += [child.pid] * (needle in memory.read(end - start))
    return found


@pytest.mark.skipif(os.geteuid() != 0, reason="reading another process's memory needs root")
async def test_no_secret_is_inside_neither_in_the_environment_nor_in_files_nor_in_memory(tools, run, tmp_path):
    credentials = [CredentialUse(host="localhost", secret="TOKEN")]
    permissions = ["fs.workspace", "network.http:localhost"]
    tool = host(
        builtin_tools()["python.run"], folder="/", credentials=credentials, permissions=permissions,
    )  # fmt: skip
    tools._tools = {**tools._tools, "python.run": tool}
    home = tmp_path / "workspaces" / "acme" / "exec_1"
    given = {"needle": CANARY[::-1], "marked": "marked-and-found"}

    running = asyncio.create_task(run("python.run", {"code": WAITING, "input": given}))
    await eventually(lambda: list(home.glob("*/ready")), within_s=20)
    (workspace,) = (ready.parent for ready in home.glob("*/ready"))
    assert memory_of_children(b"marked-and-found"), "the scan finds what is there"
    assert memory_of_children(CANARY.encode()) == []
    (workspace / "go").touch()
    output = (await running)["output"]

    assert tools._egress.secret_of("TOKEN") == CANARY, "the proxy has it"
    assert output["files"] == []
    assert CANARY not in str(output["environment"])


GUIDE = Path("docs/guides/tools.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)


def test_every_definition_in_the_guide_is_one():
    kinds = Counter()
    for text in blocks("yaml"):
        kind = re.search(r"^kind: (\w+)", text, re.MULTILINE)[1]
        kinds[kind] += 1
        if kind == "Tool":
            assert load_tool(text).definition.name == "crm.lookup"
        else:
            assert parse_agents(text, Path("agents.yaml")).registered_tools is not None

    assert kinds == {"Tool": 1, "Agents": 2}


async def test_every_call_in_the_guide_answers_as_it_says(tools):
    examples = re.findall(r"^af tool test (\S+) --input '(.*)'\n# → (.*)$", blocks("sh")[0], re.MULTILINE)

    assert len(examples) == 4
    for name, given, expected in examples:
        outcome = await tools.try_out(ToolTest("acme", name, json.loads(given), "guide"))
        assert (outcome.output, outcome.fault) == (json.loads(expected), None)


def test_the_guide_names_every_built_in_tool():
    assert [name for name in builtin_tools() if f"`{name}`" not in GUIDE] == []
