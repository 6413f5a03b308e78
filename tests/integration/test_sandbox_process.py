"""The process sandbox against real processes and the real kernel. What needs namespaces says so when it is left out."""

import asyncio
import json
import os
import shutil
import socket
import sys
from pathlib import Path

import msgspec
import psutil
import pytest
import uvloop

from agentflow.testing import eventually
from sandbox.backends.process import IsolationUnavailable, ProcessSandbox
from sandbox.policy import MIB, ToolNeeds, compile_profile, profile_hash
from sandbox.runner import UnknownBackend, open_sandbox
from sandbox.tool_call import Command, SandboxOutcome, ToolCall

CHECKOUT = Path(__file__).parents[2]
ANSWER_BYTES_MAX = 512 * 1024  # small, so that a flood is quick
TOOLS = '''
import os, socket, subprocess, sys, time
from pathlib import Path


def echo(input):
    return input


async def echo_async(input):
    return input


def told(input, context):
    return vars(context)


def prints(input):
    print("to stdout")
    sys.stderr.write("to stderr")
    return "clean"


def surroundings(input):
    return {
        "environment": dict(os.environ),
        "folder": os.getcwd(),
        "files": os.listdir(),
        "descriptors": sorted(int(name) for name in os.listdir("/proc/self/fd")),
        "leads_its_session": os.getsid(0) == os.getpid(),
    }


def raises(input):
    raise ValueError("no such article")


class Busy(Exception):
    retryable = True


def raises_retryable(input):
    raise Busy("try later")


def leaves(input):
    raise SystemExit(7)


def crashes(input):
    os.abort()


def exits(input):
    os._exit(3)


def exits_quietly(input):
    os._exit(0)


def not_json(input):
    return {"when": object()}


def not_a_number(input):
    return float("nan")


def floods(input):
    return "x" * (2 * 1024 * 1024)


def floods_logs(input):
    for _ in range(64):
        print("x" * 65536)
    return "done"


def eats_memory(input):
    held = []
    while True:
        held.append(bytearray(16 * 1024 * 1024))


def fills_disk(input):
    with open("large", "wb") as file:
        while True:
            file.write(b"x" * 1024 * 1024)


def spins(input):
    while True:
        pass


def spins_unstoppably(input):
    import signal
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGXCPU, signal.SIGALRM):
        signal.signal(number, signal.SIG_IGN)
    os.setsid() if os.getpid() != os.getpgid(0) else None
    spins(input)


def leaves_children(input):
    """A child, and one that left for a session of its own."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", input["mark"]])
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.setsid()
        os.execv(sys.executable, [sys.executable, "-c", "import time; time.sleep(600)", input["mark"]])
    os.close(writing)
    os.read(reading, 1)  # the other end closes when the new program is loaded: it has left by now
    if input["then"] == "hang":
        spins(input)
    return "gone"


def connects(input):
    with socket.create_connection(("127.0.0.1", input["port"]), timeout=2):
        return "connected"


def goes_out(input):
    with socket.socket(socket.AF_UNIX) as out:
        out.connect(os.environ["AGENTFLOW_EGRESS"])
        out.sendall(input.encode() + b"\\n")
        heard = out.makefile().readline()
    Path(os.environ["AGENTFLOW_WORKSPACE"], "heard").write_text(heard)
    return heard


def reads(input):
    return Path(input["path"]).read_text()


def writes(input):
    Path(input["path"]).write_text("written")
    return "written"


def writes_here(input):
    Path("here").write_text("x")
    return os.getcwd()


def bytes_of(input):
    return len(open(input["path"], "rb").read())
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "toolbox.py").write_text(TOOLS)
    return tmp_path / "tools"


@pytest.fixture(params=["bubblewrap", "bare"])
async def sandbox(request) -> ProcessSandbox:
    """The process backend as it is here, and as it is where bubblewrap is not installed."""
    opened = await open_sandbox("process")
    if request.param == "bubblewrap":
        if "bubblewrap" not in opened.layers("full"):
            pytest.skip("bubblewrap is not installed: apt-get install -y bubblewrap")
        return opened
    return ProcessSandbox(isolation=opened.isolation, cgroups=opened._cgroups)


@pytest.fixture
def run(sandbox, folder):
    async def call(function: str, input=None, *, isolation=None, **needs) -> SandboxOutcome:
        profile = compile_profile(
            ToolNeeds("tool", **{"output_bytes": ANSWER_BYTES_MAX, **needs}),
            backend="process",
            isolation=isolation or sandbox.isolation,
            folder=str(folder),
        )
        return await sandbox.run(tool_call(folder, function, input), profile)

    return call


def tool_call(folder: Path, function: str, input) -> ToolCall:
    return ToolCall(f"toolbox:{function}", (str(folder),), input, "exec_1", "search", 2, "default/exec_1/search")


@pytest.fixture
def fully_isolated(sandbox):
    if sandbox.isolation != "full":
        pytest.skip("this kernel refuses namespaces or Landlock; allow unprivileged user namespaces to run this test")


def is_gone(path: str) -> bool:
    return not Path(path).exists()


def living(mark: str) -> list[int]:
    return [process.pid for process in psutil.process_iter(["cmdline"]) if mark in (process.info["cmdline"] or [])]


async def test_a_call_gives_its_output_and_says_what_it_took(run, sandbox):
    outcome = await run("echo", {"text": "grüße", "list": [1, 2.5, None, True]})

    assert outcome.fault is None
    assert outcome.output == {"text": "grüße", "list": [1, 2.5, None, True]}
    assert outcome.exit_code == 0
    assert outcome.isolation == sandbox.isolation
    assert 0 < outcome.duration_s < 10
    assert outcome.max_rss_bytes > MIB


async def test_an_async_function_is_awaited(run):
    assert (await run("echo_async", 5)).output == 5


async def test_a_function_that_asks_for_its_context_is_told_which_step_it_serves(run):
    assert (await run("told")).output == {
        "execution_id": "exec_1",
        "step": "search",
        "attempt": 2,
        "effect_key": "default/exec_1/search",
    }


async def test_a_call_may_be_given_a_way_out_and_a_folder_and_finds_both_in_its_environment(sandbox, folder, tmp_path):
    """The proxy outside answers what the tool says through its socket; the workspace outlives the call."""

    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"heard " + await reader.readline())
        await writer.drain()
        writer.close()

    needs = ToolNeeds("tool", permissions=("network.http:example.com",))
    profile = compile_profile(needs, backend="process", isolation=sandbox.isolation, folder=str(folder))
    socket_path, workspace = tmp_path / "proxy.sock", tmp_path / "workspace"
    workspace.mkdir()
    call = msgspec.structs.replace(
        tool_call(folder, "goes_out", "hello"), egress=str(socket_path), workspace=str(workspace)
    )

    async with await asyncio.start_unix_server(proxy, socket_path):
        outcome = await sandbox.run(call, profile)

    assert outcome.fault is None, outcome.logs
    assert outcome.output == "heard hello\n"
    assert (workspace / "heard").read_text() == "heard hello\n"
    assert outcome.cpu_s > 0


async def test_without_a_granted_domain_there_is_no_socket_to_the_proxy(sandbox, folder, tmp_path, fully_isolated):
    profile = compile_profile(ToolNeeds("tool"), backend="process", isolation=sandbox.isolation, folder=str(folder))
    call = msgspec.structs.replace(tool_call(folder, "surroundings", None), egress=str(tmp_path / "proxy.sock"))

    assert "AGENTFLOW_EGRESS" not in (await sandbox.run(call, profile)).output["environment"]


async def test_an_executable_gets_its_input_as_json_and_answers_with_json(sandbox, folder):
    needs = ToolNeeds("tool", output_bytes=ANSWER_BYTES_MAX)
    profile = compile_profile(needs, backend="process", isolation=sandbox.isolation, folder=str(folder))

    async def command(*argv: str) -> SandboxOutcome:
        return await sandbox.run(msgspec.structs.replace(tool_call(folder, "", {"a": 1}), call=Command(argv)), profile)

    assert (await command("/bin/cat")).output == {"a": 1}
    failed = await command("/bin/sh", "-c", "echo why >&2; exit 3")
    flood = await command("/bin/sh", "-c", "yes")
    garbage = await command("/bin/echo", "{nothing")

    assert failed.fault.code == "tool_error"
    assert "exit code 3" in failed.fault.message
    assert failed.logs == "why\n"
    assert flood.fault.code == "output_too_large"
    assert garbage.fault.code == "tool_output_invalid"


async def test_what_a_tool_prints_is_its_log_and_not_its_result(run):
    outcome = await run("prints")

    assert outcome.output == "clean"
    assert "to stdout" in outcome.logs
    assert "to stderr" in outcome.logs


async def test_inside_there_is_a_home_an_empty_folder_and_nothing_else_of_the_environment_nor_a_descriptor(run):
    reading, writing = os.pipe()
    os.set_inheritable(writing, True)
    try:
        seen = (await run("surroundings")).output
        granted = (await run("surroundings", environment={"LANG": "C"})).output
    finally:
        os.close(reading)
        os.close(writing)

    assert seen["environment"] == {"HOME": seen["folder"]}
    assert granted["environment"] == {"HOME": granted["folder"], "LANG": "C"}
    assert seen["files"] == []
    assert seen["folder"] == "/sandbox" or is_gone(seen["folder"])
    assert len(seen["descriptors"]) == 5  # three streams, the result, and the listing itself
    assert seen["leads_its_session"]


@pytest.mark.parametrize(
    ("function", "code", "words", "retryable"),
    [
        ("raises", "tool_error", "ValueError: no such article", False),
        ("raises_retryable", "tool_error", "Busy: try later", True),
        ("leaves", "tool_error", "SystemExit: 7", False),
        ("no_such_function", "tool_error", "AttributeError", False),
        ("crashes", "tool_crashed", "signal", False),
        ("exits", "tool_crashed", "exit code 3", False),
        ("exits_quietly", "tool_output_invalid", "did not write a result", False),
        ("not_json", "tool_output_invalid", "not JSON serializable", False),
        ("not_a_number", "tool_output_invalid", "not JSON", False),
        ("floods", "output_too_large", "524288 bytes", False),
        ("eats_memory", "memory_exceeded", "128 MiB", False),
        ("fills_disk", "disk_exceeded", "too large a file", False),
    ],
)
async def test_each_way_to_fail_has_its_fault(run, function, code, words, retryable):
    outcome = await run(function, memory_bytes=128 * MIB)

    assert outcome.output is None
    assert outcome.fault is not None
    assert (outcome.fault.code, outcome.fault.retryable) == (code, retryable)
    assert words in outcome.fault.message


async def test_a_raised_error_leaves_its_trace_in_the_log(run):
    assert "toolbox.py" in (await run("raises")).logs


async def test_a_flood_of_logs_is_cut_and_does_not_stop_the_tool(run):
    outcome = await run("floods_logs")

    assert outcome.output == "done"
    assert len(outcome.logs) == 64 * 1024


async def test_memory_is_bounded_for_real(run):
    outcome = await run("eats_memory", memory_bytes=128 * MIB)

    assert outcome.max_rss_bytes < 160 * MIB


@pytest.mark.parametrize("function", ["spins", "spins_unstoppably"])
async def test_a_tool_that_takes_too_long_is_ended(run, function):
    outcome = await run(function, timeout_s=0.5)

    assert outcome.fault is not None
    assert (outcome.fault.code, outcome.fault.retryable) == ("tool_timeout", True)
    assert outcome.duration_s < 5


async def test_cpu_time_is_bounded_also_where_nobody_watches_the_clock(sandbox, folder):
    profile = compile_profile(ToolNeeds("tool"), backend="process", isolation=sandbox.isolation, folder=str(folder))
    outcome = await sandbox.run(tool_call(folder, "spins", None), msgspec.structs.replace(profile, cpu_s=1))

    assert outcome.fault is not None
    assert outcome.fault.code == "tool_timeout"
    assert "CPU" in outcome.fault.message


@pytest.mark.parametrize("then", ["hang", "return"])
async def test_no_child_outlives_its_call_not_even_in_a_session_of_its_own(run, fully_isolated, tmp_path, then):
    mark = f"mark-{tmp_path.name}-{os.getpid()}"

    outcome = await run("leaves_children", {"mark": mark, "then": then}, timeout_s=2)

    assert (outcome.fault is not None) == (then == "hang")
    assert living(mark) == []


async def test_cancelling_a_call_ends_its_processes_before_it_returns(run, fully_isolated, tmp_path):
    mark = f"mark-{tmp_path.name}-{os.getpid()}"
    calling = asyncio.create_task(run("leaves_children", {"mark": mark, "then": "hang"}))
    await eventually(lambda: len(living(mark)) == 2)

    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling

    assert living(mark) == []


async def test_the_tool_ends_and_its_folder_goes_when_its_worker_is_killed(sandbox, folder, tmp_path):
    mark = f"mark-{tmp_path.name}-{os.getpid()}"
    script = f"""
import asyncio, json, sys
sys.path.insert(0, {str(CHECKOUT)!r})
from sandbox.policy import ToolNeeds, compile_profile
from sandbox.runner import open_sandbox
from sandbox.tool_call import ToolCall

async def main():
    sandbox = await open_sandbox("process")
    profile = compile_profile(ToolNeeds("t"), backend="process", isolation=sandbox.isolation, folder={str(folder)!r})
    call = ToolCall("toolbox:leaves_children", ({str(folder)!r},), {json.dumps({"mark": mark, "then": "hang"})}, "e", "s", 1, "k")
    await sandbox.run(call, profile)

asyncio.run(main())
"""  # noqa: E501
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    worker = await asyncio.create_subprocess_exec(sys.executable, "-c", script, env={"TMPDIR": str(temporary)})
    await eventually(lambda: len(living(mark)) == 2, within_s=10)

    worker.kill()
    await worker.wait()

    left = 0 if sandbox.isolation == "full" else 1  # without namespaces, one that left its group is out of reach
    await eventually(lambda: len(living(mark)) == left)
    await eventually(lambda: not list(temporary.iterdir()))
    for pid in living(mark):
        psutil.Process(pid).kill()


async def test_there_is_no_network_not_even_where_a_domain_is_granted(run, fully_isolated):
    """A granted domain is reached through the egress proxy only."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        denied = await run("connects", {"port": port})
        granted = await run("connects", {"port": port}, permissions=("network.http:*",))

    for outcome in (denied, granted):
        assert outcome.fault is not None
        assert outcome.fault.code == "tool_error"
        assert any(said in outcome.fault.message for said in ("unreachable", "refused"))


async def test_files_are_closed_but_for_the_tools_own_folder_and_what_is_granted(run, fully_isolated, folder, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    secret = outside / "secret"
    secret.write_text("s3cret")
    (folder / "beside").write_text("mine")

    async def fault_of(function: str, path: Path, **needs) -> str | None:
        fault = (await run(function, {"path": str(path)}, **needs)).fault
        if fault is None:
            return None
        said = fault.message.split(":")[0]
        hidden = ("PermissionError", "FileNotFoundError", "OSError")  # closed, absent, or on a read-only mount
        return "PermissionError" if said in hidden else said

    assert await fault_of("reads", secret) == "PermissionError"
    assert await fault_of("reads", secret, permissions=(f"fs.read:{outside}",)) is None
    assert await fault_of("reads", CHECKOUT / "pyproject.toml") == "PermissionError"  # though it is on sys.path
    assert await fault_of("reads", folder / "beside") is None
    assert await fault_of("writes", folder / "beside") == "PermissionError"
    assert await fault_of("writes", outside / "new", permissions=(f"fs.read:{outside}",)) == "PermissionError"
    assert await fault_of("writes", outside / "new", permissions=("fs.write:../outside",)) is None
    assert (outside / "new").read_text() == "written"


async def test_the_workers_own_environment_cannot_be_read_through_proc(run, fully_isolated):
    outcome = await run("bytes_of", {"path": f"/proc/{os.getpid()}/environ"})

    assert outcome.fault is not None
    assert any(said in outcome.fault.message for said in ("PermissionError", "FileNotFoundError"))


async def test_the_working_folder_is_writable_and_gone_afterwards(run):
    outcome = await run("writes_here")

    assert outcome.fault is None
    assert is_gone(f"{outcome.output}/here")


async def test_reduced_isolation_still_bounds_and_cleans_and_says_that_it_is_reduced(run, tmp_path):
    mark = f"mark-{tmp_path.name}-{os.getpid()}"

    outcome = await run("surroundings", isolation="reduced")
    late = await run("spins", isolation="reduced", timeout_s=0.5)
    left = await run("leaves_children", {"mark": mark, "then": "return"}, isolation="reduced", timeout_s=1)

    assert outcome.isolation == "reduced"
    assert outcome.output["environment"] == {"HOME": outcome.output["folder"]}
    assert late.fault is not None
    assert late.fault.code == "tool_timeout"
    assert left.isolation == "reduced"
    escaped = living(mark)
    # The one of the process group is gone; only a control group reaches one that left it: that is what reduced means.
    assert len(escaped) == (0 if "cgroup" in left.layers else 1)
    for pid in escaped:
        psutil.Process(pid).kill()


async def test_a_profile_that_demands_full_isolation_is_refused_where_there_is_none(folder):
    profile = compile_profile(ToolNeeds("tool"), backend="process", isolation="full", folder=str(folder))

    with pytest.raises(IsolationUnavailable) as caught:
        await ProcessSandbox(isolation="reduced").run(tool_call(folder, "echo", 1), profile)

    assert caught.value.code == "AF1403"


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_both_event_loops_feed_bound_and_end_a_call_alike(folder, tmp_path, new_loop):
    """Workers run on uvloop where it is installed, and its child processes are not asyncio's."""
    mark = f"mark-{tmp_path.name}-{os.getpid()}"
    large = "x" * 500_000  # more than a pipe holds

    async def calls() -> list[SandboxOutcome]:
        sandbox = await open_sandbox("process")
        needs = ToolNeeds("tool", timeout_s=1, output_bytes=ANSWER_BYTES_MAX)
        profile = compile_profile(needs, backend="process", isolation=sandbox.isolation, folder=str(folder))
        wanted = [("echo", large), ("floods", None), ("leaves_children", {"mark": mark, "then": "hang"})]
        return [await sandbox.run(tool_call(folder, function, given), profile) for function, given in wanted]

    with asyncio.Runner(loop_factory=new_loop) as runner:
        echoed, flooded, late = runner.run(calls())

    assert echoed.output == large
    assert flooded.fault is not None
    assert flooded.fault.code == "output_too_large"
    assert late.fault is not None
    assert late.fault.code == "tool_timeout"
    escaped = living(mark)
    assert len(escaped) == (0 if late.isolation == "full" else 1)
    for pid in escaped:
        psutil.Process(pid).kill()


async def test_the_outcome_names_the_profile_it_ran_under(run, folder, sandbox):
    needs = ToolNeeds("tool", output_bytes=ANSWER_BYTES_MAX)
    profile = compile_profile(needs, backend="process", isolation=sandbox.isolation, folder=str(folder))

    assert (await run("echo", 1)).profile_hash == profile_hash(profile)


async def test_an_unknown_backend_is_refused_and_not_replaced():
    with pytest.raises(UnknownBackend, match="firecracker") as caught:
        await open_sandbox("firecracker")

    assert caught.value.code == "AF1401"


async def test_a_call_that_is_cancelled_while_it_starts_leaves_no_half_of_bubblewrap_behind(sandbox, folder):
    """Such a half waits for ever with our pipes in its hands, and whoever reads them waits with it."""
    profile = compile_profile(ToolNeeds("tool"), backend="process", isolation=sandbox.isolation, folder=str(folder))

    for each in (sandbox, ProcessSandbox(isolation=sandbox.isolation, bubblewrap=shutil.which("bwrap"))):
        for turn in range(12):
            running = asyncio.create_task(each.run(tool_call(folder, "echo", 1), profile))
            await asyncio.sleep(turn * 0.001)
            running.cancel()
            await asyncio.wait([running], timeout=10)
            assert running.done()

    await eventually(lambda: not living(str(folder)), within_s=5)
