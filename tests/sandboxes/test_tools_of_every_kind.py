"""Every kind of tool, pushed to the registry and called by a workflow, on the backend it needs, with its record."""

import asyncio
import http.server
import json
import shutil
import ssl
import threading
from pathlib import Path

import httpx
import pytest
import wasmtime

from agentflow.bus import subjects
from agentflow.bus.nats_jetstream import jetstream
from agentflow.contracts.message import Message
from agentflow.contracts.tool_records import EgressRecord, ToolCallRecord
from agentflow.devstack.platform import EmbeddedPlatform, embedded_platform
from tests.e2e.test_af import af
from tests.sandboxes.conftest import require
from tests.security.conftest import make_certificates

SECRET = "canary-5f1e0a93bb"
AGENTS = """
apiVersion: agentflow/v1
kind: Agents
registered_tools: {allow: ["network.http:localhost:PORT", "fs.workspace", "wasi.stdio", "secret.use:TOKEN"]}
policy: {tenants: {"*": {allow: ["*"], ceilings: {timeout: 60s}}}}
"""
ECHO = """(module (memory (export "memory") 1) (func (export "alloc") (param i32) (result i32) (i32.const 1024))
  (func (export "run") (param i32 i32) (result i64)
    (i64.or (i64.shl (i64.extend_i32_u (local.get 0)) (i64.const 32)) (i64.extend_i32_u (local.get 1)))))"""
PACKAGE = '''
import os, platform, socket, ssl

def shouted(input):
    return {"text": input["text"].upper() + "!"}

def through_tls(input):
    """A client that speaks TLS by itself, and believes whom its environment tells it to."""
    with socket.socket(socket.AF_UNIX) as tunnel:
        tunnel.connect(os.environ["AGENTFLOW_EGRESS"])
        tunnel.sendall(f"CONNECT localhost:{input['port']} HTTP/1.1\\r\\n\\r\\n".encode())
        assert b" 200 " in tunnel.recv(4096)
        with ssl.create_default_context().wrap_socket(tunnel, server_hostname="localhost") as secure:
            host = f"Host: localhost:{input['port']}"
            secure.sendall(f"GET /own HTTP/1.1\\r\\n{host}\\r\\nConnection: close\\r\\n\\r\\n".encode())
            said = b""
            while part := secure.recv(65536):
                said += part
    held = input["needle"][::-1] in repr(os.environ)
    return {"text": said.split(b"\\r\\n\\r\\n", 1)[1].decode()[:2000], "held": held}
'''
# name → how it runs, what else it says, where it must run
KINDS = {
    "kind.container": ({"type": "container", "argv": ["/bin/cat"]}, {}, "docker"),
    "kind.contained": ({"type": "container", "argv": ["/bin/cat"]}, {"sandbox": "gvisor"}, "gvisor"),
    "kind.wasm": ({"type": "wasm", "file": "echo.wasm"}, {}, "wasm"),
    "kind.command": ({"type": "command", "argv": ["/bin/cat"]}, {}, "process"),
    "kind.executable": ({"type": "command", "argv": ["/bin/cat"]}, {"sandbox": "gvisor"}, "gvisor"),
    "kind.package": ({"type": "function", "call": "shouting.loudly:shouted"}, {}, "process"),
    "kind.packed": ({"type": "function", "call": "shouting.loudly:shouted"}, {"sandbox": "docker"}, "docker"),
    "kind.installed": ({"type": "function", "call": "json.tool:json.loads"}, {"input": {"type": "string"}}, "process"),
}


class Pages(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        given = json.loads(body) if body else {}
        answer = json.dumps({**given, "authorization": self.headers.get("Authorization", "")}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_POST = do_GET  # noqa: N815 - the library's own name

    def log_message(self, *_) -> None:
        """Quiet."""


@pytest.fixture(scope="module")
def platform(dockerd, image, tmp_path_factory):
    """The whole platform, with a daemon, gVisor, bubblewrap and a site that only this test's authority vouches for."""
    require("dockerd", "runsc", "bwrap")
    folder = tmp_path_factory.mktemp("kinds")
    make_certificates(folder, ("localhost",))
    site = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Pages)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(folder / "server.pem")
    site.socket = tls.wrap_socket(site.socket, server_side=True)
    threading.Thread(target=site.serve_forever, daemon=True).start()
    app = folder / "app"
    (app / "shouting").mkdir(parents=True)
    for path in (app, app / "shouting"):
        path.chmod(0o755)
    (app / "shouting" / "__init__.py").touch()
    (app / "shouting" / "loudly.py").write_text(PACKAGE)
    (app / "echo.wasm").write_bytes(wasmtime.wat2wasm(ECHO))
    (app / "agents.yaml").write_text(AGENTS.replace("PORT", str(site.server_address[1])))
    (folder / "secrets").mkdir()
    (folder / "secrets" / "TOKEN").write_text(SECRET)
    environment = {
        "AF_DOCKER_HOST": dockerd.url,
        "AF_SANDBOX_IMAGE": image,
        "AF_EGRESS_PRIVATE": "127.0.0.0/8,::1/128",
        "AF_SECRETS_DIR": str(folder / "secrets"),
        "SSL_CERT_FILE": str(folder / "ca.pem"),
    }
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        running = embedded_platform(folder / "home", agents_file=app / "agents.yaml", extra_env=environment)
        started = runner.run(running.__aenter__())
        try:
            yield started, site.server_address[1]
        finally:
            runner.run(running.__aexit__(None, None, None))
            site.shutdown()
            site.server_close()


def definition(name: str, run: dict, **spec) -> str:
    said = {"input": {"type": "object", "required": ["text"]}, "output": {"type": "object"}} | spec
    head = {"apiVersion": "agentflow/v1", "kind": "Tool", "metadata": {"name": name, "version": "1.0.0"}}
    return json.dumps({**head, "spec": {"run": run, **said}})


def workflow(tool: str, input) -> str:
    state = {"tool": f"{tool}@1", "input": input, "timeout": "60s"}
    fsm = {"initial_state": "only", "final_states": ["only"], "states": {"only": state}}
    head = {"apiVersion": "agentflow/v1", "kind": "Workflow"}
    named = {"name": tool.replace(".", "-"), "version": "1.0.0"}
    return json.dumps({**head, "metadata": named, "spec": {"planner": "fsm", "fsm": fsm}})


async def called(platform: EmbeddedPlatform, text: str, tool: str, input) -> dict:
    async with httpx.AsyncClient(
        base_url=f"{platform.api_url}/api/v1", trust_env=False, timeout=120,
        headers={"Authorization": f"Bearer {platform.api_key}"},
    ) as http_client:  # fmt: skip
        pushed = await http_client.post("/tools", content=text, headers={"Content-Type": "application/json"})
        assert pushed.status_code in (200, 201), pushed.text
        made = await http_client.post(
            "/workflows", content=workflow(tool, input), headers={"Content-Type": "application/json"}
        )
        assert made.status_code in (200, 201), made.text
        started = await http_client.post(f"/workflows/{made.json()['id']}/execute", json={"input": {}, "wait": True})
        assert started.status_code < 300, started.text
        return started.json()


async def recorded(nats_url: str, execution: str) -> tuple[list[ToolCallRecord], list[EgressRecord], list[Message]]:
    async with jetstream(nats_url, name="test", replicas=1) as bus:
        heard = [message async for message in bus.replay(subjects.AUDIT)]
    mine = [message for message in heard if message.metadata.get("execution_id") == execution]
    records = [message.read(ToolCallRecord | EgressRecord) for message in mine]
    calls = [record for record in records if isinstance(record, ToolCallRecord)]
    return calls, [record for record in records if isinstance(record, EgressRecord)], mine


@pytest.mark.parametrize("tool", KINDS)
async def test_a_tool_of_this_kind_is_pushed_called_by_a_workflow_and_recorded(platform, image, tool):
    started, _ = platform
    run, spec, backend = KINDS[tool]
    run = {**run, "image": image} if run["type"] == "container" else run
    given = '{"text": "hello"}' if tool == "kind.installed" else {"text": "hello"}

    result = await called(started, definition(tool, run, **spec), tool, given)

    said = "HELLO!" if "pack" in tool else "hello"
    assert (result["status"], result["output"]) == ("completed", {"text": said}), result
    calls, _, messages = await recorded(started.nats_url, result["execution_id"])
    assert len(calls) == 2, "one for `tools.calls`, one for `tools.audit`"
    assert {(call.backend, call.isolation, call.call_id) for call in calls} == {(backend, "full", calls[0].call_id)}
    assert len(calls[0].profile_hash) == 64
    assert calls[0].layers
    traces = {message.trace_id for message in messages}
    assert len(traces) == 1
    assert traces != {"0" * 32}
    assert calls[0].site.trace_id in traces


@pytest.mark.parametrize("sandbox", ["process", "docker", "gvisor"])
async def test_an_http_call_gets_its_credential_from_the_proxy(platform, sandbox):
    started, port = platform
    tool = f"kind.http-{sandbox}"
    text = definition(
        tool,
        {"type": "http", "url": f"https://localhost:{port}/crm"},
        permissions=[f"network.http:localhost:{port}"],
        credentials=[{"host": "localhost", "secret": "TOKEN"}],
        sandbox=sandbox,
    )

    result = await called(started, text, tool, {"text": "hello"})

    assert result["status"] == "completed", result
    assert result["output"] == {"text": "hello", "authorization": f"Bearer {SECRET}"}
    calls, egress, _ = await recorded(started.nats_url, result["execution_id"])
    assert calls[0].backend == sandbox
    assert [record.verdict for record in egress] == ["allowed", "closed"]
    assert egress[0].secret == "TOKEN"


@pytest.mark.parametrize("sandbox", ["process", "docker", "gvisor"])
async def test_a_client_inside_that_speaks_tls_itself_believes_the_proxy_and_holds_no_secret(platform, sandbox):
    """The certificate of the authority that ends TLS for such hosts is handed into the sandbox."""
    started, port = platform
    tool = f"kind.tls-{sandbox}"
    text = definition(
        tool,
        {"type": "function", "call": "shouting.loudly:through_tls"},
        permissions=[f"network.http:localhost:{port}"],
        credentials=[{"host": "localhost", "secret": "TOKEN"}],
        sandbox=sandbox,
        input={"type": "object"},
    )

    result = await called(started, text, tool, {"port": port, "needle": SECRET[::-1]})

    assert result["status"] == "completed", result
    assert json.loads(result["output"]["text"])["authorization"] == f"Bearer {SECRET}"
    assert result["output"]["held"] is False


async def test_af_lists_shows_and_tries_what_was_pushed(platform, tmp_path, image):
    started, _ = platform
    env = {"AF_API_URL": started.api_url, "AF_API_KEY": started.api_key}
    file = tmp_path / "tool.json"
    file.write_text(definition("tried.container", {"type": "container", "image": image, "argv": ["/bin/cat"]}))

    assert af("tool", "push", file, cwd=tmp_path, **env).stdout.startswith("registered tried.container 1.0.0")
    assert "container" in af("tool", "list", "--name", "tried.container", cwd=tmp_path, **env).stdout
    assert image in af("tool", "show", "tried.container", cwd=tmp_path, **env).stdout
    tried = json.loads(
        af("tool", "test", "tried.container", "--input", '{"text": "x"}', "--json", cwd=tmp_path, **env).stdout
    )
    assert (tried["output"], tried["backend"]) == ({"text": "x"}, "docker")


def test_nothing_here_is_left_out_where_the_programs_are():
    """So that a run which says it tried all kinds did."""
    missing = [program for program in ("dockerd", "runsc", "bwrap") if shutil.which(program) is None]
    if missing:
        pytest.skip(f"left out: tools in Docker and gVisor; install {', '.join(missing)}")
    assert Path("/bin/cat").exists()
