"""How a process ends: one exit code for each family of errors, one readable message, never a stack trace.

The one place for `af` and for the services alike; each entry point hands what it could not handle to `report`.
"""

import sys
import traceback
from enum import IntEnum

from agentflow.errors import AgentFlowError, Bug, Rejected, Unavailable


class ExitCode(IntEnum):
    """What a script may rely on."""

    OK = 0
    REJECTED = 2  # what was asked cannot be done: correct it first (also wrong usage, which typer reports)
    UNAVAILABLE = 3  # something needed is away: the same command may work later
    EXECUTION_FAILED = 4  # AgentFlow did its part, the workflow ended in failure
    BUG = 70  # a fault in AgentFlow (EX_SOFTWARE)
    INTERRUPTED = 130  # Ctrl-C


class ExecutionDidNotComplete(AgentFlowError):
    """The workflow's own failure. Neither the caller's mistake nor ours, so it has an exit code of its own."""

    code = "AF1520"

    def __init__(self, execution: str, reason: str) -> None:
        super().__init__(
            f"Execution {execution} failed: {reason}",
            hint=f"af executions show {execution} --events",
        )


def exit_code_of(error: BaseException) -> ExitCode:
    match error:
        case ExecutionDidNotComplete():
            return ExitCode.EXECUTION_FAILED
        case Rejected():
            return ExitCode.REJECTED
        case Unavailable():
            return ExitCode.UNAVAILABLE
        case KeyboardInterrupt():
            return ExitCode.INTERRUPTED
        case _:
            return ExitCode.BUG


def report(error: Exception, *, debug: bool) -> ExitCode:
    """Tell a person on stderr what happened and what to do, and say how the process should exit."""
    while isinstance(error, ExceptionGroup):  # task groups wrap what goes wrong inside them; the first says why
        error = error.exceptions[0]
    told = error if isinstance(error, AgentFlowError) else _unexpected(error)
    prefix = f"error[{told.code}]"
    if sys.stderr.isatty():
        prefix = f"\x1b[1;31m{prefix}\x1b[0m"
    sys.stderr.write(f"{prefix}: {told}\n")
    if debug:
        traceback.print_exception(error, file=sys.stderr)
    return exit_code_of(told)


def _unexpected(error: Exception) -> Bug:
    name = type(error).__name__
    return Bug(
        f"Stopped on an unexpected error: {name}: {error}" if str(error) else f"Stopped on an unexpected {name}.",
        hint="Set AF_LOG_LEVEL=debug for the trace and report it; it is a fault in AgentFlow.",
    )
