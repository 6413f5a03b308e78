"""What the services have in common: deadlines, orders to executions and page tokens."""

from collections.abc import Callable
from typing import Any, TypeAlias

import grpc

from agentflow import limits
from agentflow.errors import Invalid, Problem
from agentflow.execution import messages
from agentflow.execution.messages import Stamp
from agentflow.ids import ExecutionId
from agentflow.v1 import agentflow_pb2 as pb
from control_plane.registry.cursors import Key, cursor_of, key_of
from control_plane.rpc.errors import answering
from control_plane.rpc.guard import caller
from control_plane.rpc.values import execution_message
from control_plane.service import ControlPlane

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"

_TO_ANSWER_S = 1.0  # of a deadline, kept back so that the answer still arrives in time; of a short one a fifth


def wait_of(wanted_s: float, context: Context) -> float | None:
    """How long a caller waits: as long as it says, and never beyond the deadline of its call."""
    if wanted_s <= 0:
        return None
    left_s: float | None = context.time_remaining()  # None without a deadline, whatever its types say
    longest_s = limits.WAIT_S_MAX if left_s is None else max(0.0, left_s - min(_TO_ANSWER_S, left_s / 5))
    return min(wanted_s, limits.WAIT_S_MAX, longest_s)


async def ask(
    behind: ControlPlane, context: Context, execution: str, given: str, order: Callable[[Stamp, str], messages.Request]
) -> pb.Execution:
    """Ask something of an execution: where it stands afterwards. The same id given again is recorded once."""
    async with answering(context):
        named = given or behind.new_request_id()
        state = await behind.orchestrator.request(
            caller().tenant, ExecutionId(execution), lambda stamp: order(stamp, named)
        )
        return await execution_message(behind, state)


class Paging:
    """One page of a list, as `page_size` and `page_token` ask for it. `filters` is what the token belongs to."""

    def __init__(self, size: int, token: str, filters: Any) -> None:
        if not 0 <= size <= limits.LIST_PAGE_MAX:
            wrong = Problem(f"It must be from 1 to {limits.LIST_PAGE_MAX}.", path="page_size")
            raise Invalid("The list cannot be asked for like this.", hint="Ask for fewer.", problems=[wrong])
        self._question = f"rpc{filters}"
        self.size = size or limits.LIST_PAGE_DEFAULT
        self.after: Key | None = key_of(self._question, token) if token else None

    def token(self, last: Key | None) -> str:
        return "" if last is None else cursor_of(self._question, last)
