"""Moving an execution to another version of its workflow: judged as it stands, and committed only while it stands so.

The rules are `agentflow.execution.moving`'s, and the owner of the execution asks them once more when it decides.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from agentflow.errors import Conflict
from agentflow.execution.events import WorkflowRef
from agentflow.execution.messages import Move, Stamp
from agentflow.execution.moving import Adoption, Misfit, adoption, kinds
from agentflow.execution.program import Program
from agentflow.execution.state import ExecutionState


class MoveWanted(msgspec.Struct, frozen=True):
    """`renamed`: variables by their new names, with the old ones; `vars`: values that are given instead."""

    workflow: WorkflowRef
    renamed: dict[str, str] = {}
    vars: dict[str, Any] = {}
    reason: str = ""

    def message(self, stamp: Stamp, request: str, stands: dict[str, str]) -> Move:
        return Move(stamp, request, self.workflow, stands, self.renamed, self.vars, self.reason)


class CannotMove(Conflict):
    code = "AF1283"

    def __init__(self, execution: str, version: str, misfits: Sequence[Misfit]) -> None:
        super().__init__(
            f"Execution {execution} cannot be moved to {version}: {'; '.join(map(shown, misfits))}",
            hint="It is as it was. Map the variables that are named (`--map NEW=OLD`), or let it end as it began.",
        )


def judged(state: ExecutionState, current: Program, new: Program, wanted: MoveWanted) -> Adoption:
    """What stands in the way of a move, as the execution is now."""
    return adoption(state, new, wanted.message(Stamp(0), "", kinds(state, current)))


def shown(misfit: Misfit) -> str:
    place = f"`{misfit.node or misfit.key}`: " if misfit.node or misfit.key else ""
    return f"{place}{misfit.why}"
