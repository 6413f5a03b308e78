"""Every error a person may see: what happened, what to do next, and whether trying again helps.

    AgentFlowError            code, message, hint, retryable
    ├── Rejected              the caller asked for something that cannot be done; asking again changes nothing
    │   ├── Invalid           the input is wrong; `problems` lists every fault, each with its place
    │   ├── NotFound          the thing does not exist for this tenant
    │   ├── Conflict          it contradicts what is already recorded
    │   ├── Unauthenticated   nobody knows who asks: no credential, or none that is valid
    │   ├── Forbidden         whoever asks is known, and may not do this
    │   ├── OverBudget        the money for it is spent: a person has to allow more, or a new period to begin
    │   └── Limited           too much or too often; `retry_after_s` says when it may be asked again
    ├── Unavailable           something we need is away; the same request may work later (retryable)
    └── Bug                   our fault: an invariant is broken; never retried, always loud

A family decides the status, in one place for each way in: `control_plane/api/errors.py` (HTTP),
`control_plane/rpc/errors.py` (gRPC) and `agentflow/process_exit.py` (exit codes). Each `code` has a page in
docs/errors.
"""

from collections.abc import Sequence
from typing import ClassVar

import msgspec


class Problem(msgspec.Struct, frozen=True, omit_defaults=True):
    """One fault in something a person wrote, and where it is. Lines and columns count from 1."""

    message: str
    hint: str = ""
    line: int | None = None
    column: int | None = None
    path: str = ""

    def __str__(self) -> str:
        place = f"{self.line}:{self.column}: " if self.line is not None else f"{self.path}: " if self.path else ""
        return f"{place}{self.message}" + (f" ({self.hint})" if self.hint else "")


class AgentFlowError(Exception):
    code: ClassVar[str] = "AF0000"
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, *, hint: str) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n  try: {self.hint}"


class Rejected(AgentFlowError):
    code = "AF1000"


class Invalid(Rejected):
    code = "AF1002"

    def __init__(self, message: str, *, hint: str, problems: Sequence[Problem] = ()) -> None:
        super().__init__(message, hint=hint)
        self.problems = tuple(problems)

    def __str__(self) -> str:
        return "\n".join([self.message, *(f"  {problem}" for problem in self.problems), f"  try: {self.hint}"])


class NotFound(Rejected):
    code = "AF1003"


class Conflict(Rejected):
    code = "AF1004"


class Unauthenticated(Rejected):
    code = "AF1700"


class Forbidden(Rejected):
    code = "AF1701"


class OverBudget(Rejected):
    code = "AF1804"


class Limited(Rejected):
    code = "AF1702"
    retryable = True

    def __init__(self, message: str, *, hint: str, retry_after_s: float = 1.0) -> None:
        super().__init__(message, hint=hint)
        self.retry_after_s = retry_after_s


class Unavailable(AgentFlowError):
    code = "AF2000"
    retryable = True


class Bug(AgentFlowError):
    code = "AF9000"

    def __init__(
        self, message: str, *, hint: str = "Report this with the log around it; it is a fault in AgentFlow."
    ) -> None:
        super().__init__(message, hint=hint)
