"""Tools that take too much, or will not go: ended with the right fault, while a neighbour's call goes on as always."""

import asyncio
import os
import shutil
import tempfile
from pathlib import Path

import psutil
import pytest

from agentflow.testing import eventually
from sandbox.backends.cgroup import find_cgroups
from sandbox.policy import MIB
from sandbox.tool_call import Command, Container
from tests.sandboxes.conftest import call_of, profile_for

LINUX = ["bubblewrap", "docker", "gvisor"]


@pytest.fixture
def grouped():
    if find_cgroups() is None:
        pytest.skip("this machine lets us make no control groups: sums over processes are not bounded here")


@pytest.mark.parametrize("name", LINUX)
@pytest.mark.parametrize(
    ("bomb", "codes"),
    [
        ("forks", {"processes_exceeded", "memory_exceeded", "tool_timeout"}),  # whichever bound it meets first
        ("allocates", {"memory_exceeded"}),
        ("allocates_in_children", {"memory_exceeded"}),
        ("fills_disk", {"disk_exceeded"}),
        ("floods_output", {"output_too_large", "memory_exceeded"}),
        ("deep_json", {"tool_output_invalid"}),
    ],
)
async def test_a_bomb_ends_with_its_fault_and_the_neighbour_is_served(name, bomb, codes, opened, folder, grouped):
    async with opened(name) as sandbox:
        bounded = profile_for(
            sandbox,
            folder,
            timeout_s=8,
            output_bytes=MIB,
            memory_bytes=192 * MIB,
            disk_bytes=32 * MIB,
            processes_max=24,
        )
        plain = profile_for(sandbox, folder)
        exploding = asyncio.create_task(sandbox.run(call_of(f"bombs:{bomb}", folder), bounded))

        neighbour = await sandbox.run(call_of("bombs:quick", folder, 7, tenant="neighbour"), plain)
        outcome = await exploding
        afterwards = await sandbox.run(call_of("bombs:quick", folder, 8), plain)

    assert outcome.fault is not None
    assert outcome.fault.code in codes, (outcome.fault, outcome.logs[-500:])
    assert (neighbour.output, afterwards.output) == (7, 8)


@pytest.mark.parametrize("name", LINUX)
async def test_a_flood_of_logs_is_cut_and_harms_nobody(name, opened, folder):
    async with opened(name) as sandbox:
        outcome = await sandbox.run(call_of("bombs:floods_log", folder), profile_for(sandbox, folder))

    assert outcome.output == "done"
    assert len(outcome.logs) == 64 * 1024


def living(mark: str) -> list[int]:
    return [process.pid for process in psutil.process_iter(["cmdline"]) if mark in (process.info["cmdline"] or [])]


def left_on_host() -> set[str]:
    """What sandboxes of this process have on the host: control groups, and folders for temporary files."""
    left = set(Path(tempfile.gettempdir()).glob("agentflow-sandbox-*"))
    cgroups = find_cgroups()
    for home in set(cgroups.homes.values()) if cgroups is not None else ():
        left |= set(home.glob(f"agentflow-{os.getpid()}-*"))
    return {str(path) for path in left}


@pytest.mark.parametrize("name", LINUX)
@pytest.mark.parametrize("then", ["hang", "return", "cancelled"])
async def test_nothing_of_a_call_outlives_it_however_it_hides(name, then, opened, folder, tmp_path, monkeypatch):
    """Double fork, a session of its own, deaf to signals. gVisor's processes are no processes of the host at all."""
    mark = f"mark-{tmp_path.name}-{os.getpid()}"
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    async with opened(name) as sandbox:
        profile = profile_for(sandbox, folder, timeout_s=2)
        given = {"mark": mark, "then": "return" if then == "return" else "hang"}
        calling = asyncio.create_task(sandbox.run(call_of("bombs:lives_on", folder, given), profile))
        if then == "cancelled":
            if name != "gvisor":
                await eventually(lambda: living(mark), within_s=10)
            calling.cancel()
            with pytest.raises(asyncio.CancelledError):
                await calling
        else:
            outcome = await calling
            assert (outcome.fault.code if outcome.fault else outcome.output) == (
                "left" if then == "return" else "tool_timeout"
            )
        await eventually(lambda: not living(mark), within_s=1)

    assert left_on_host() == set()


@pytest.mark.parametrize("name", ["bubblewrap", "docker", "gvisor", "gvisor_docker"])
async def test_nothing_passes_from_one_call_to_the_next_nor_to_another_tenant(name, opened, folder, tmp_path):
    mark = f"canary-{tmp_path.name}"
    async with opened(name) as sandbox:
        profile = profile_for(sandbox, folder)
        users = set()
        for tenant in ("a", "a", "b"):
            left = await sandbox.run(call_of("probes:leave_canary", folder, {"mark": mark}, tenant=tenant), profile)
            if hasattr(sandbox, "warmed"):
                await sandbox.warmed()
            found = await sandbox.run(call_of("probes:find_canary", folder, {"mark": mark}, tenant=tenant), profile)
            assert found.output["found"] == []
            assert left.output == found.output["user"]
            users.add((tenant, left.output))

    assert len(users) == 2
    assert len({user for _, user in users}) == (2 if os.getuid() == 0 else 1), "each tenant is a user of its own"


@pytest.mark.parametrize("name", ["bubblewrap", "docker", "gvisor", "gvisor_docker"])
async def test_the_only_way_out_is_the_socket_of_the_egress_proxy(name, opened, folder, tmp_path):
    (folder / "goes.py").write_text(
        "import os, socket\n"
        "def out(input):\n"
        "    with socket.socket(socket.AF_UNIX) as s:\n"
        "        s.connect(os.environ['AGENTFLOW_EGRESS'])\n"
        "        s.sendall(b'hello\\n')\n"
        "        return s.makefile().readline()\n"
    )

    async def proxy(reader, writer):
        writer.write(b"heard " + await reader.readline())
        await writer.drain()
        writer.close()

    async with opened(name) as sandbox:
        granted = profile_for(sandbox, folder, permissions=("network.http:example.com",))
        async with await asyncio.start_unix_server(proxy, tmp_path / "proxy.sock"):
            for _ in range(2):  # cold, then warm
                call = call_of("goes:out", folder, egress=str(tmp_path / "proxy.sock"))
                outcome = await sandbox.run(call, granted)
                assert outcome.output == "heard hello\n", outcome
                if hasattr(sandbox, "warmed"):
                    await sandbox.warmed()
        denied = await sandbox.run(
            call_of("goes:out", folder, egress=str(tmp_path / "proxy.sock")), profile_for(sandbox, folder)
        )

    assert denied.fault is not None
    assert "KeyError" in denied.fault.message


@pytest.mark.parametrize("name", ["bubblewrap", "docker", "gvisor", "gvisor_docker"])
async def test_a_program_that_knows_nothing_of_the_socket_is_led_to_it(name, opened, folder, tmp_path):
    """A plain connection to a granted name, with no proxy variable set: the proxy hears its bytes."""
    (folder / "goes.py").write_text(
        "import socket\n"
        "def plainly(input):\n"
        "    with socket.create_connection(('example.com', 80), timeout=5) as s:\n"
        "        s.sendall(b'GET /\\n')\n"
        "        return s.makefile().readline()\n"
    )

    async def proxy(reader, writer):
        writer.write(b"heard " + await reader.readline())
        await writer.drain()
        writer.close()

    async with opened(name) as sandbox, await asyncio.start_unix_server(proxy, tmp_path / "proxy.sock"):
        granted = profile_for(sandbox, folder, permissions=("network.http:example.com",))
        for _ in range(2):  # cold, then warm
            outcome = await sandbox.run(call_of("goes:plainly", folder, egress=str(tmp_path / "proxy.sock")), granted)
            assert outcome.output == "heard GET /\n", outcome
            if hasattr(sandbox, "warmed"):
                await sandbox.warmed()


@pytest.mark.parametrize("name", ["bubblewrap", "gvisor"])
@pytest.mark.parametrize(
    "argv",
    [
        ("curl", "-s", "http://example.com/page"),
        ("node", "-e", "fetch('http://example.com/page').then(r => r.text()).then(t => console.log(t))"),
    ],
    ids=lambda argv: argv[0],
)
async def test_curl_and_node_reach_a_granted_host_with_no_proxy_variable_set(name, argv, opened, folder, tmp_path):
    program = shutil.which(argv[0])
    if program is None:
        pytest.skip(f"left out: needs apt-get install -y {argv[0]}{'js' if argv[0] == 'node' else ''}")

    async def proxy(reader, writer):
        said = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")[0].decode()
        body = f'"{said}"'.encode()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%b" % (len(body), body))
        await writer.drain()
        writer.close()

    async with opened(name) as sandbox, await asyncio.start_unix_server(proxy, tmp_path / "proxy.sock"):
        needs = {"permissions": ("network.http:example.com",), "memory_bytes": 1024 * MIB, "timeout_s": 60}
        call = call_of(Command((program, *argv[1:])), folder, egress=str(tmp_path / "proxy.sock"))
        outcome = await sandbox.run(call, profile_for(sandbox, folder, **needs))

    assert outcome.output == "GET /page HTTP/1.1", (outcome.fault, outcome.logs)


@pytest.mark.parametrize("name", ["bubblewrap", "docker", "gvisor"])
async def test_a_workspace_outlives_the_call_and_belongs_to_the_tenant(name, opened, folder, tmp_path):
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (workspace / "before").write_text("x")
    async with opened(name) as sandbox:
        script = 'cat > "$AGENTFLOW_WORKSPACE/after"; cat /workspace/before >&2; echo 1'
        call = call_of(Command(("/bin/sh", "-c", script)), folder, [1, 2], workspace=str(workspace))
        outcome = await sandbox.run(call, profile_for(sandbox, folder))

    assert outcome.output == 1, outcome
    assert outcome.logs == "x"
    assert (workspace / "after").read_text() == "[1, 2]"


async def test_a_container_tool_is_its_images_command_with_json_in_and_out(opened, image, folder):
    async with opened("docker") as sandbox:
        profile = profile_for(sandbox, folder)
        echoed = await sandbox.run(call_of(Container(image, ("/bin/cat",)), folder, {"a": [1]}), profile)
        failed = await sandbox.run(call_of(Container(image, ("/bin/sh", "-c", "exit 4")), folder), profile)

    assert echoed.output == {"a": [1]}
    assert failed.fault.code == "tool_error"
    assert "exit code 4" in failed.fault.message


async def test_an_image_of_somebody_elses_is_led_to_the_proxy_too(opened, image, folder, tmp_path):
    """It knows nothing of us: the name resolves and the port answers because its network is one of ours."""
    code = "import socket,json; s=socket.create_connection(('example.com',80),20); s.sendall(b'GET /\\n'); "
    code += "print(json.dumps(s.makefile().readline()))"

    async def proxy(reader, writer):
        writer.write(b"heard " + await reader.readline())
        await writer.drain()
        writer.close()

    async with opened("docker") as sandbox, await asyncio.start_unix_server(proxy, tmp_path / "proxy.sock"):
        granted = profile_for(sandbox, folder, permissions=("network.http:example.com",))
        tool = Container(image, ("/usr/local/bin/python3", "-c", code))
        outcome = await sandbox.run(call_of(tool, folder, egress=str(tmp_path / "proxy.sock")), granted)
        await sandbox.warmed()
        left = sandbox._client.containers(all=True, filters={"label": ["agentflow.sandbox"], "status": ["exited"]})
        assert left == []
        alone = await sandbox.run(call_of(tool, folder), profile_for(sandbox, folder))

    assert outcome.output == "heard GET /\n", (outcome.fault, outcome.logs)
    assert alone.fault is not None


async def test_an_image_by_tag_is_refused(opened, image, folder):
    from sandbox.backends.docker import ImageNotPinned

    async with opened("docker") as sandbox:
        with pytest.raises(ImageNotPinned):
            await sandbox.run(call_of(Container("agentflow-test:latest"), folder), profile_for(sandbox, folder))


@pytest.mark.parametrize("backend", ["docker", "gvisor"])
async def test_a_backend_that_is_not_there_refuses(backend, monkeypatch, tmp_path):
    from sandbox.backends.daemon import DockerOptions
    from sandbox.backends.unsupported import SandboxUnavailable
    from sandbox.runner import open_sandbox

    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(SandboxUnavailable) as caught:
        await open_sandbox(backend, docker=DockerOptions(f"unix://{tmp_path}/none.sock"))

    assert caught.value.code == "AF1411"
