"""What a mailbox asks of an agent, and what an agent may know about the step it serves."""

import math
from collections.abc import Awaitable, Callable
from decimal import Decimal
from typing import Any, Protocol, runtime_checkable

import msgspec

from agentflow.clock import Clock, SystemClock
from agentflow.contracts.step import StepRequest
from agentflow.contracts.usage import Usage, usage_of
from agentflow.contracts.workspace import WorkspaceLeft
from agentflow.ids import DEFAULT_TENANT, ExecutionId, TenantId


class Cancellation:
    """Whether nobody waits for a step any more. Set on the event loop, read from any thread."""

    __slots__ = ("is_set", "reason")

    def __init__(self) -> None:
        self.is_set = False
        self.reason = ""

    def set(self, reason: str) -> None:
        self.reason = self.reason or reason
        self.is_set = True


_CLOCK = SystemClock()


class StepContext(msgspec.Struct, frozen=True):
    """Handed to functions that take a parameter named `context`."""

    execution_id: ExecutionId
    step: str
    attempt: int
    effect_key: str  # the same over all attempts: hand it on wherever doing a thing twice would hurt
    # Since the epoch, by this machine's clock; the step is given up then. Counted from when it began here, because
    # the clocks of two machines need not agree.
    deadline_ms: int
    tenant: TenantId = DEFAULT_TENANT
    # What a stateful agent remembers from step to step; kept when the step succeeds. Others find it empty.
    state: dict[str, Any] = msgspec.field(default_factory=dict)
    cancellation: Cancellation = msgspec.field(default_factory=Cancellation)
    ends_at_s: float = math.inf  # the deadline by the clock below, which never steps back
    clock: Clock = _CLOCK
    save: Callable[[], Awaitable[None]] | None = None
    trace_id: str = ""  # of the execution, for whoever writes down what was done for it
    usage: list[Usage] = msgspec.field(default_factory=list)
    left: list[WorkspaceLeft] = msgspec.field(default_factory=list)  # what the call of a tool left in the workspace

    @property
    def remaining_s(self) -> float:
        """What is left until the deadline; give it on as the timeout of whatever you call."""
        return self.ends_at_s - self.clock.monotonic_s()

    @property
    def cancelled(self) -> bool:
        """True once the step was cancelled or given up. A function in a thread must look: nothing can stop it."""
        return self.cancellation.is_set

    def spent(self, resource: str, *, dollars: str | Decimal | int | None = None, **tokens: int) -> None:
        """Put on record what this attempt has used, whatever becomes of it: `context.spent("gpt-x", dollars="0.0021",
        input=900, output=310)`. Without `dollars` its price is not known. Kinds of tokens do not overlap."""
        self.usage.append(usage_of(resource, dollars=dollars, tokens=tokens))

    async def checkpoint(self) -> None:
        """Keep `state` as it is now, whatever becomes of the step. Nothing to keep: nothing happens."""
        if self.save is not None:
            await self.save()


class Agent(Protocol):
    async def run(self, request: StepRequest, context: StepContext) -> Any:
        """The step's output. Raises whatever went wrong; may be cancelled at any await."""
        ...

    async def close(self) -> None: ...


@runtime_checkable
class Starts(Protocol):
    """An agent that wants to be told before its first step, once the worker has its mailbox."""

    async def start(self) -> None: ...
