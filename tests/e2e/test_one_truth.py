"""Every way to ask for a status gives the same answer within a second, while many executions move."""

import asyncio
import time

HOLDS = """
apiVersion: agentflow/v1
kind: Workflow
metadata: {name: truth-holds, version: 1.0.0}
spec:
  planner: fsm
  fsm:
    initial_state: hold
    final_states: [hold]
    states:
      hold: {wait: {signal: go}, timeout: 1h}
"""
AT_ONCE = 40
WITHIN_S = 1.0


async def test_list_detail_and_history_agree_within_a_second_under_load(api) -> None:
    """Each execution is paused, resumed and ended; after each answer the others must say the same."""
    await api.push_workflow(HOLDS)
    started = [(await api.execute("truth-holds", {"of": "truth"})).execution_id for _ in range(AT_ONCE)]

    async def listed(execution: str) -> str:
        page = await api.executions(workflow="truth-holds", input={"of": "truth"}, limit=AT_ONCE)
        return next(item.status for item in page.items if item.id == execution)

    async def agreed(execution: str, status: str) -> None:
        """The list and the detail say so, at once or very soon."""
        begun = time.perf_counter()
        while {await listed(execution), (await api.execution(execution)).status} != {status}:
            assert time.perf_counter() - begun < WITHIN_S, f"{execution} is not {status} for everybody"

    async def lived(execution: str) -> None:
        await api.pause(execution)
        await agreed(execution, "paused")
        await api.resume(execution)
        await agreed(execution, "running")
        await api.signal(execution, "go")
        last = [event.type async for event in api.follow(execution)][-1]
        await agreed(execution, "completed")
        assert last.startswith("execution.completed")

    await asyncio.gather(*map(lived, started))
