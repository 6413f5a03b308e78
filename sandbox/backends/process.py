"""A Python function in a fresh process of its own: started, fed, bounded, and judged from outside.

The fences themselves are raised by `child`, inside, before the tool's code is imported. Every way a call can
go wrong becomes a `StepFault`; only a profile this machine cannot honour is an error.
"""

import asyncio
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any, cast

import msgspec
import structlog

from agentflow.contracts.step import StepFault
from agentflow.errors import Unavailable
from sandbox.policy import ExecProfile, Isolation, profile_hash
from sandbox.tool_call import SandboxOutcome, ToolCall

_STDERR = 2
_CHILD = str(Path(__file__).with_name("child.py"))
_LOG_BYTES_MAX = 64 * 1024
_REPORT_BYTES_MAX = 256  # the warden's line and the wrapping of the tool's
_STOP_S = 2.0  # the warden needs a moment to end the tool; after this it is not asked any more

log = structlog.get_logger(__name__)


class IsolationUnavailable(Unavailable):
    code = "AF1403"
    retryable = False

    def __init__(self) -> None:
        super().__init__(
            "A tool demands full isolation, and this machine's kernel refuses the namespaces or Landlock for it.",
            hint="Allow unprivileged user namespaces (kernel 5.13 or newer), or run the worker where they are allowed.",
        )


class _Report(msgspec.Struct, frozen=True):
    """The warden's line."""

    exit_code: int
    cpu_s: float
    max_rss_bytes: int


class _Answer(msgspec.Struct, frozen=True):
    """The tool's line."""

    output: Any = None
    error: str | None = None
    retryable: bool = False
    invalid: str | None = None
    memory: bool = False


_report = msgspec.json.Decoder(_Report)
_answer = msgspec.json.Decoder(_Answer)


class _TooLarge(Exception):
    pass


async def open_process_sandbox() -> "ProcessSandbox":
    """Try the fences once, so that every profile compiled from here on says what will really hold."""
    probe = await asyncio.create_subprocess_exec(
        sys.executable, "-I", "-B", _CHILD, "probe", stderr=asyncio.subprocess.PIPE, env={}
    )
    _, reason = await probe.communicate()
    if probe.returncode == 0:
        return ProcessSandbox(isolation="full")
    log.warning(
        "sandbox.reduced",
        backend="process",
        reason=reason.decode(errors="replace").strip(),
        lost="tools reach the network and every file the worker's user may read",
    )
    return ProcessSandbox(isolation="reduced")


class ProcessSandbox:
    backend = "process"

    def __init__(self, *, isolation: Isolation) -> None:
        self.isolation = isolation

    async def run(self, call: ToolCall, profile: ExecProfile) -> SandboxOutcome:
        if profile.isolation == "full" and self.isolation != "full":
            raise IsolationUnavailable
        loop = asyncio.get_running_loop()
        started = loop.time()
        folder = tempfile.mkdtemp(prefix="agentflow-tool-")
        logs = bytearray()
        try:
            fault, output, report = await self._run_in(folder, call, profile, logs)
        finally:
            await asyncio.shield(asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True))
        return SandboxOutcome(
            isolation=profile.isolation,
            profile_hash=profile_hash(profile),
            duration_s=loop.time() - started,
            output=output,
            fault=fault,
            exit_code=report.exit_code if report else None,
            cpu_s=report.cpu_s if report else 0.0,
            max_rss_bytes=report.max_rss_bytes if report else 0,
            logs=logs.decode(errors="replace"),
        )

    async def _run_in(
        self, folder: str, call: ToolCall, profile: ExecProfile, logs: bytearray
    ) -> tuple[StepFault | None, Any, _Report | None]:
        loop = asyncio.get_running_loop()
        transport, conversation = await loop.subprocess_exec(
            lambda: _Conversation(profile.output_bytes + _REPORT_BYTES_MAX, logs),
            *(sys.executable, "-I", "-B", _CHILD),
            cwd=folder,
            env=profile.environment,
            start_new_session=True,
        )
        try:
            stdin = cast(asyncio.WriteTransport, transport.get_pipe_transport(0))
            stdin.write(_document(call, profile))
            stdin.write_eof()
            async with asyncio.timeout(profile.wall_s):
                raw = await conversation.over
        except TimeoutError:
            late = f"The tool ran longer than {profile.wall_s:g} s."
            return StepFault("tool_timeout", late, retryable=True), None, None
        except _TooLarge:
            large = f"The tool answered with more than {profile.output_bytes} bytes."
            return StepFault("output_too_large", large), None, None
        finally:
            await asyncio.shield(_end(transport, conversation))
        return _judge(raw, profile)


def _document(call: ToolCall, profile: ExecProfile) -> bytes:
    context = {
        "execution_id": call.execution_id,
        "step": call.step,
        "attempt": call.attempt,
        "effect_key": call.effect_key,
    }
    given = {"AGENTFLOW_EGRESS": call.egress, "AGENTFLOW_WORKSPACE": call.workspace}
    return msgspec.json.encode(
        {
            "call": call.call,
            "path": call.path,
            "input": call.input,
            "context": context,
            "profile": profile,
            "given": {name: value for name, value in given.items() if value is not None},
        }
    )


class _Conversation(asyncio.SubprocessProtocol):
    """What the process says, up to a bound, and when it has said all of it."""

    def __init__(self, answer_bytes_max: int, logs: bytearray) -> None:
        self.over: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.exited = asyncio.Event()
        self._answer_bytes_max = answer_bytes_max
        self._answer = bytearray()
        self._logs = logs

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == _STDERR:
            self._logs += data[: _LOG_BYTES_MAX - len(self._logs)]
        elif len(self._answer) <= self._answer_bytes_max:
            self._answer += data
            if len(self._answer) > self._answer_bytes_max and not self.over.done():
                self.over.set_exception(_TooLarge())

    def process_exited(self) -> None:
        self.exited.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """The process has exited and nobody holds its pipes any more."""
        if not self.over.done():
            self.over.set_result(bytes(self._answer))


async def _end(transport: asyncio.SubprocessTransport, conversation: _Conversation) -> None:
    """Leave nothing running. The warden is asked first: only it can reach a tool that left its process group."""
    try:
        if not conversation.exited.is_set():
            transport.terminate()
            async with asyncio.timeout(_STOP_S):
                await conversation.exited.wait()
    except ProcessLookupError:
        pass
    except TimeoutError:
        os.killpg(transport.get_pid(), signal.SIGKILL)
        await conversation.exited.wait()
    finally:
        transport.close()


def _judge(raw: bytes, profile: ExecProfile) -> tuple[StepFault | None, Any, _Report | None]:
    """What the tool's answer and the warden's report mean together."""
    line, _, last = raw.rpartition(b"\n")
    try:
        report = _report.decode(last)
    except msgspec.DecodeError:
        early = "The sandbox ended before the tool did; its log says why."
        return StepFault("tool_crashed", early, retryable=True), None, None
    if report.exit_code == -signal.SIGKILL and report.cpu_s >= profile.cpu_s - 0.5:
        return StepFault("tool_timeout", f"The tool used more than {profile.cpu_s} s of CPU time."), None, report
    if report.exit_code != 0:
        return StepFault("tool_crashed", f"The tool's process ended with {_ending(report.exit_code)}."), None, report
    try:
        answer = _answer.decode(line)
    except (msgspec.DecodeError, RecursionError):
        return StepFault("tool_output_invalid", "The tool's process did not write a result."), None, report
    if answer.memory:
        bound = f"The tool needed more than {profile.memory_bytes // (1024 * 1024)} MiB of memory."
        return StepFault("memory_exceeded", bound), None, report
    if answer.invalid is not None:
        return StepFault("tool_output_invalid", f"The output is not JSON: {answer.invalid}."), None, report
    if answer.error is not None:
        return StepFault("tool_error", answer.error, retryable=answer.retryable), None, report
    return None, answer.output, report


def _ending(exit_code: int) -> str:
    return f"exit code {exit_code}" if exit_code >= 0 else f"signal {signal.Signals(-exit_code).name}"
