"""What is said between a backend and the program inside (`child`): the call as one frame, the answer as two lines.

The same for every backend that runs that program; only the pipe differs. Every way a call can go wrong becomes a
`StepFault` here, so all backends name it alike.
"""

import signal
from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from agentflow.contracts.step import StepFault
from sandbox.policy import MIB, ExecProfile
from sandbox.tool_call import Command, ToolCall

LOG_BYTES_MAX = 64 * 1024
REPORT_BYTES_MAX = 512  # the warden's line and the wrapping of the tool's


class Report(msgspec.Struct, frozen=True):
    """The warden's line."""

    exit_code: int
    cpu_s: float
    max_rss_bytes: int
    out_of_memory: bool = False  # as a container sees it; a control group of ours is asked from outside
    out_of_processes: bool = False


class _Answer(msgspec.Struct, frozen=True):
    """The tool's line."""

    output: Any = None
    error: str | None = None
    retryable: bool = False
    invalid: str | None = None
    memory: bool = False
    disk: bool = False
    flood: bool = False


class Ending(msgspec.Struct, frozen=True):
    """What was heard and seen of a call that came to an end of its own."""

    raw: bytes
    clean: bool = True  # the program inside ended as it should; otherwise its report is not believed
    out_of_memory: bool = False
    out_of_processes: bool = False


class Judgement(msgspec.Struct, frozen=True):
    fault: StepFault | None = None
    output: Any = None
    report: Report | None = None


_report = msgspec.json.Decoder(Report)
_answer = msgspec.json.Decoder(_Answer)


class TooLarge(Exception):
    """The answer passed its bound."""


def frame(
    call: ToolCall,
    profile: ExecProfile,
    *,
    fences: Collection[str] = (),
    given: Mapping[str, str | None],
    path: tuple[str, ...],
    readable: tuple[str, ...] = (),
    writable: tuple[str, ...] = (),
    bounds: Mapping[str, int] | None = None,
    user: int | None = None,
    seccomp: bytes = b"",
    dies_with_parent: bool = False,
    contained: bool = False,
    outward: str | None = None,
) -> bytes:
    """One call as `child` reads it. `given` is what only this call's environment holds: its way out, its folder."""
    body = msgspec.json.encode(
        {
            "call": call.call if isinstance(call.call, str) else "",
            "argv": call.call.argv if isinstance(call.call, Command) else [],
            "path": path,
            "input": call.input,
            "context": {
                "execution_id": call.execution_id,
                "step": call.step,
                "attempt": call.attempt,
                "effect_key": call.effect_key,
            },
            "profile": profile,
            "given": {name: value for name, value in given.items() if value is not None},
            "fences": sorted(fences),
            "readable": readable,
            "writable": writable,
            "bounds": bounds or {},
            "user": user,
            "seccomp": seccomp.hex(),
            "dies_with_parent": dies_with_parent,
            "contained": contained,
            "outward": outward,
        }
    )
    return b"%d\n%s" % (len(body), body)


def is_complete(raw: bytes | bytearray) -> bool:
    """Whether the warden's line has come: the tool has ended, and its container is about to.

    A tool can write such a line itself; it then answers early, and is ended with its container all the same.
    """
    if not raw.endswith(b"}\n"):
        return False
    try:
        _report.decode(raw[raw.rfind(b"\n", 0, -1) + 1 :])
    except msgspec.DecodeError:
        return False
    return True


def took_too_long(profile: ExecProfile) -> Judgement:
    return Judgement(StepFault("tool_timeout", f"The tool ran longer than {profile.wall_s:g} s.", retryable=True))


def said_too_much(profile: ExecProfile) -> Judgement:
    large = f"The tool answered with more than {profile.output_bytes} bytes."
    return Judgement(StepFault("output_too_large", large))


def judge(ending: Ending, profile: ExecProfile) -> Judgement:
    """What the tool's answer, the warden's report and the machine's own counters mean together."""
    line, _, last = ending.raw.removesuffix(b"\n").rpartition(b"\n")
    try:
        report = _report.decode(last) if ending.clean else None
    except msgspec.DecodeError:
        report = None
    if report is None:
        return Judgement(_broken_off(ending, profile))
    seen = Ending(
        ending.raw,
        out_of_memory=ending.out_of_memory or report.out_of_memory,
        out_of_processes=ending.out_of_processes or report.out_of_processes,
    )
    fault, output = _judged(line, report, seen, profile)
    return Judgement(fault, output, report)


def _broken_off(ending: Ending, profile: ExecProfile) -> StepFault:
    if ending.out_of_memory:
        return _memory(profile)
    if ending.out_of_processes:
        return _processes(profile)
    early = "The sandbox ended before the tool did; its log says why."
    return StepFault("tool_crashed", early, retryable=True)


def _judged(line: bytes, report: Report, ending: Ending, profile: ExecProfile) -> tuple[StepFault | None, Any]:
    if report.exit_code == -signal.SIGKILL and report.cpu_s >= profile.cpu_s - 0.5:
        return StepFault("tool_timeout", f"The tool used more than {profile.cpu_s} s of CPU time."), None
    if report.exit_code != 0:
        if ending.out_of_memory:
            return _memory(profile), None
        return StepFault("tool_crashed", f"The tool's process ended with {_ending(report.exit_code)}."), None
    try:
        answer = _answer.decode(line)
    except (msgspec.DecodeError, RecursionError):
        return StepFault("tool_output_invalid", "The tool's process did not write a result."), None
    return _answered(answer, ending, profile)


def _answered(answer: _Answer, ending: Ending, profile: ExecProfile) -> tuple[StepFault | None, Any]:
    if answer.memory:
        return _memory(profile), None
    if answer.disk:
        bound = f"The tool wrote more than its {profile.disk_bytes // MIB} MiB of files, or too large a file."
        return StepFault("disk_exceeded", bound), None
    if answer.flood:
        return said_too_much(profile).fault, None
    if answer.invalid is not None:
        return StepFault("tool_output_invalid", f"The output is not JSON: {answer.invalid}."), None
    if answer.error is not None:
        if ending.out_of_memory:
            return _memory(profile), None
        if ending.out_of_processes:
            return _processes(profile), None
        return StepFault("tool_error", answer.error, retryable=answer.retryable), None
    return None, answer.output


def _memory(profile: ExecProfile) -> StepFault:
    bound = f"The tool needed more than {profile.memory_bytes // MIB} MiB of memory."
    return StepFault("memory_exceeded", bound)


def _processes(profile: ExecProfile) -> StepFault:
    bound = f"The tool started more than {profile.processes_max} processes or threads at once."
    return StepFault("processes_exceeded", bound)


def _ending(exit_code: int) -> str:
    return f"exit code {exit_code}" if exit_code >= 0 else f"signal {signal.Signals(-exit_code).name}"
