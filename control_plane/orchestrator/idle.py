"""Which executions may be forgotten here because they only wait. Pure.

Everything about them is stored, their timers stay armed, and the next message reads them again from their snapshot and
what followed it. What has steps under way or children to look after stays: nobody else remembers to send that again.
"""

from collections.abc import Mapping

from agentflow.execution.state import ExecutionState
from agentflow.ids import ExecutionId

_LOOKED_AT_MAX = 20_000  # in one go: a sweep must not hold up the commits


def idle(open_executions: Mapping[ExecutionId, ExecutionState], *, keep: int) -> list[ExecutionId]:
    """Those beyond `keep`; whoever moved last comes last, in the mapping and here."""
    excess = len(open_executions) - keep
    found: list[ExecutionId] = []
    for looked_at, (execution, state) in enumerate(open_executions.items()):
        if len(found) >= excess or looked_at >= _LOOKED_AT_MAX:
            break
        if not (state.in_flight or state.waiting or state.children):
            found.append(execution)
    return found
