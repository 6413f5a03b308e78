"""Limits hold and the queue moves on, whichever process dies while executions wait for room."""

from agentflow.testing import eventually

LIMITED = """
apiVersion: agentflow/v1
kind: Workflow
metadata: {name: limited, version: 1.0.0}
spec:
  planner: fsm
  concurrency: 2
  fsm:
    initial_state: held
    final_states: [held]
    states:
      held: {agent: patient, input: {n: "${input.n}"}, timeout: 60s}
"""


def most_at_once(events_of: dict[str, list]) -> int:
    """How many executions were under way at the same time, by their own events."""
    moments = []
    for events in events_of.values():
        begun = next(event.at for event in events if event.type == "execution.begun.v1")
        moments += [(begun, 1), (events[-1].at, -1)]
    under_way = most = 0
    for _, change in sorted(moments):
        under_way += change
        most = max(most, under_way)
    return most


async def test_queued_starts_survive_a_killed_control_plane_and_never_exceed_their_limit(world):
    async with world() as here:
        await here.client.push_workflow(LIMITED)
        started = [(await here.client.execute("limited", {"n": n})).execution_id for n in range(6)]
        await eventually(lambda: sum(run[1] == "patient" for run in here.all_runs()) == 2, within_s=10)
        states = [(await here.client.execution(execution)).status for execution in started]
        assert states == ["running", "running", "queued", "queued", "queued", "queued"]

        here.platform.control_plane.kill()
        here.let_go()

        told = {execution: [event async for event in here.client.follow(execution)] for execution in started}
        assert {events[-1].type for events in told.values()} == {"execution.completed.v1"}
        assert most_at_once(told) <= 2
        assert all(here.runs(execution) == {"patient": 1} for execution in started)


async def test_a_delayed_start_begins_once_though_its_moment_passed_while_nobody_was_there(world):
    async with world() as here:
        here.let_go()
        started = await here.client.execute("breakable", {"n": 1}, delay="1s")
        assert started.status == "queued"

        here.platform.control_plane.kill()

        events = [event async for event in here.client.follow(started.execution_id)]
        types = [event.type for event in events]
        assert types.count("execution.begun.v1") == 1
        assert types[-1] == "execution.completed.v1"
        assert here.runs(started.execution_id) == {"quick": 2, "patient": 1}
