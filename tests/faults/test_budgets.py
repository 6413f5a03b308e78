"""A budget over several control planes: what one commits the others know, whoever is killed."""

import asyncio

import pytest

from agentflow.errors import OverBudget
from agentflow.testing import eventually
from tests.faults.deployment import deployed

AGENTS = """
import asyncio


async def spend(input, context):
    await asyncio.sleep(0.02)  # all of them have begun before the budget is used up
    context.spent("model x", dollars="0.01")
    return {}
"""
AGENTS_FILE = """
apiVersion: agentflow/v1
kind: Agents
agents:
  spender: {type: function, call: "breakable:spend"}
"""
LOOPING = """
apiVersion: agentflow/v1
kind: Workflow
metadata: {name: looping, version: 1.0.0}
spec:
  planner: fsm
  fsm:
    initial_state: again
    final_states: [done]
    states:
      again: {loop: {while: "index < 110", max: 110, do: {agent: spender}}, on_success: done}
      done: {succeed: {}}
"""


async def test_two_control_planes_stop_together_and_a_killed_ones_executions_go_on(tmp_path, postgres_dsn, nats):
    async with deployed(tmp_path, postgres_dsn, nats) as here:
        (here.folder / "breakable.py").write_text(AGENTS)
        (here.folder / "agents.yaml").write_text(AGENTS_FILE)
        one, other = await here.plane(), await here.plane()
        await here.worker()
        await eventually(lambda: one.shards and other.shards, within_s=20)
        await one.client.push_workflow(LOOPING)
        budget = await one.client.budgets.create("workflow", "looping", dollars="1.00")
        planes = (one, other)
        begun = await asyncio.gather(*(planes[n % 2].client.execute("looping", {}) for n in range(6)))
        started = [each.execution_id for each in begun]

        async def all_stand_still():
            found = [await other.client.execution(each) for each in started]
            return all(each.held_by == budget.id for each in found)

        await eventually(all_stand_still, within_s=20)
        for plane in planes:
            with pytest.raises(OverBudget, match=budget.id):
                await plane.client.execute("looping", {})
        spent = float((await other.client.budgets.get(budget.id)).spent.dollars)
        assert 1.00 <= spent <= 2.00, "what was committed within one look at most is beyond it"

        one.kill()
        await other.client.budgets.update(budget.id, dollars="100")

        async def all_done():
            return all([(await other.client.execution(each)).status == "completed" for each in started])

        await eventually(all_done, within_s=30)
        assert (await other.client.budgets.get(budget.id)).spent.dollars == "6.600000"
