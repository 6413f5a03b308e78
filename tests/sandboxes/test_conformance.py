"""One suite for all backends, on the real thing: a tool without grants reaches what the guide's table says, no more."""

import asyncio
import os
import secrets
import socket
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from sandbox.runner import open_sandbox
from sandbox.tool_call import WasmModule
from tests.sandboxes import table, wasm_probes
from tests.sandboxes.conftest import call_of, profile_for, setuid_program
from tests.sandboxes.probes import PROBES

LINUX = ["bubblewrap", "process", "docker", "gvisor", "gvisor_docker"]


class _Echo(asyncio.DatagramProtocol):
    def connection_made(self, transport):
        self.transport = transport

    def datagram_received(self, data, addr):
        self.transport.sendto(b"heard", addr)


@asynccontextmanager
async def bait(tmp_path: Path, name: str = ""):
    """Everything the probes reach for, really there: a worker with a secret, ports, sockets, a private file."""
    private = tmp_path / "private"
    private.mkdir(exist_ok=True)
    (private / "secret").write_text("s3cret")
    canary, abstract = f"canary-{secrets.token_hex(8)}", f"agentflow-{secrets.token_hex(8)}"
    loop = asyncio.get_running_loop()
    worker = await asyncio.create_subprocess_exec(
        *(sys.executable, "-S", "-c", "import sys; print('up', flush=True); sys.stdin.read()", canary),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, env={"SECRET": canary},
    )  # fmt: skip
    await worker.stdout.readline()
    tcp = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    udp, _ = await loop.create_datagram_endpoint(_Echo, ("127.0.0.1", 0))
    daemon = await asyncio.start_unix_server(lambda _, writer: writer.close(), private / "docker.sock")
    hidden = socket.socket(socket.AF_UNIX)
    hidden.bind("\0" + abstract)
    hidden.listen()
    try:
        yield {
            "secret": str(private / "secret"),
            "folder": str(tmp_path / "tools"),
            "docker_socket": str(private / "docker.sock"),
            "setuid": setuid_program(name),
            "canary": canary,
            "worker": worker.pid,
            "worker_name": canary,
            "port": tcp.sockets[0].getsockname()[1],
            "address": "127.0.0.1",
            "udp": udp.get_extra_info("sockname")[1],
            "abstract": abstract,
        }
    finally:
        hidden.close()
        udp.close()
        for server in (tcp, daemon):
            server.close()
        worker.stdin.close()
        await worker.wait()


@pytest.mark.parametrize("name", LINUX)
async def test_a_tool_without_grants_reaches_what_the_guide_says_and_nothing_else(name, opened, folder, tmp_path):
    async with opened(name) as sandbox, bait(tmp_path, name) as given:
        outcome = await sandbox.run(call_of("probes:run", folder, given), profile_for(sandbox, folder, timeout_s=120))

    assert outcome.fault is None, outcome.logs
    assert len(outcome.output) == sum(len(probes) for probes in PROBES.values()) >= 40
    through = {probe: seen["said"] for probe, seen in outcome.output.items() if seen["reached"]}
    expected = table.THROUGH[name] if os.getuid() == 0 else set(table.THROUGH[name]) - {"being_root", "capabilities"}
    assert set(through) == set(expected), through


async def test_a_wasm_module_without_grants_reaches_nothing(tmp_path):
    private = tmp_path / "private"
    private.mkdir()
    (private / "secret").write_text("s3cret")
    (tmp_path / "granted").mkdir()
    (tmp_path / "granted" / "open").write_text("yes")
    paths = {
        "read_shadow": "/etc/shadow",
        "read_host_secret": str(private / "secret"),
        "list_host_secret_folder": str(private),
        "write_system": "/usr/bin",
        "write_root": "/",
        "link_outside": str(private / "secret"),
        "canary_of_worker": f"/proc/{os.getpid()}/environ",
        "see_worker": f"/proc/{os.getpid()}/status",
        "read_disk": "/dev/mem",
        "read_kernel_memory": "/proc/kcore",
        "write_sysctl": "/proc/sys/kernel/core_pattern",
        "trigger_sysrq": "/proc/sysrq-trigger",
    }
    sandbox = await open_sandbox("wasm")
    # Granted one folder and all of WASI: the strongest position a module can be in without being let out.
    profile = profile_for(sandbox, tmp_path, permissions=("fs.read:granted", "wasi.*"))
    nothing = profile_for(sandbox, tmp_path)
    reached = {}

    async def attempted(probe: str, under) -> object:
        file = tmp_path / f"{probe}.wasm"
        file.write_bytes(wasm_probes.module(probe, paths=paths | {"positive": "open"}))
        outcome = await sandbox.run(call_of(WasmModule(str(file)), tmp_path), under)
        return outcome.output if outcome.fault is None else outcome.fault.code

    for probes in PROBES.values():
        for probe in probes:
            said = await attempted(probe.__name__, profile)
            assert said in ("reached", "refused", "import_denied")
            if said == "reached":
                reached[probe.__name__] = said
            assert await attempted(probe.__name__, nothing) in ("import_denied", "refused")
    positive = await attempted("positive", profile)
    await sandbox.close()

    assert reached == table.THROUGH["wasm"]
    assert positive == "reached", "the attempts work where they may"


def test_the_guide_shows_the_table_that_the_suite_holds():
    page = table.GUIDE.read_text()

    assert table.written(page) == page, "stale: python -m tests.sandboxes.table"
