"""An owner that may have been replaced tells nobody that there is nothing to do: its successor may know better."""

import asyncio

import pytest

from agentflow.execution.events import WorkflowRef
from agentflow.execution.messages import Stamp, StepReported
from agentflow.execution.state import ExecutionState, Status
from agentflow.ids import ExecutionId, StepPath, TenantId, WorkerId, WorkflowId
from agentflow.ports import ShardLost
from control_plane.orchestrator.commit_loop import CommitLoop
from control_plane.orchestrator.inbox import Arrival, Inbox
from control_plane.orchestrator.within_budget import Unbudgeted, WithinBudget

WORKFLOW = WorkflowRef(WorkflowId("wf_1"), "line", "1.0.0", "d" * 64)


@pytest.mark.parametrize("is_current", [True, False])
async def test_a_result_that_changes_nothing_is_settled_only_while_the_lease_is_current(is_current):
    inbox: Inbox = Inbox()
    told = asyncio.get_running_loop().create_future()
    known = ExecutionState(
        version=3, status=Status.RUNNING, execution=ExecutionId("exec_1"), tenant=TenantId("acme"), workflow=WORKFLOW
    )

    async def program_of(tenant, workflow):
        return None

    loop = CommitLoop(
        inbox=inbox,
        store=None,
        program_of=program_of,
        feed=None,
        timers=None,
        performer=None,
        watchers=None,
        open_executions={known.execution: known},
        shards=1,
        lost=None,
        epochs={0: 7},
        is_current=lambda: is_current,
        limited=lambda _: None,
        within_budget=WithinBudget(budgets=Unbudgeted(), inbox=inbox, stamp=lambda: Stamp(1), shards=1),
    )
    late = StepReported(Stamp(1), StepPath("nobody-waits"), 1, WorkerId("wrk"), 0, 0, None)
    inbox.put(Arrival(known.execution, late, lambda _: told.set_result(None), told.set_exception))
    running = asyncio.create_task(loop.run())
    await asyncio.wait([told], timeout=5)
    running.cancel()

    assert isinstance(told.exception(), ShardLost) is not is_current
