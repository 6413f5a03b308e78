"""A schedule fires each of its moments once, whichever control plane dies, and however many watch it."""

from itertools import pairwise

from agentflow.clock import parse_rfc3339
from agentflow.testing import eventually
from tests.faults.test_replicas import LEASE_S, second_control_plane, shards_of

QUICK = """
apiVersion: agentflow/v1
kind: Workflow
metadata: {name: quick, version: 1.0.0}
spec:
  planner: fsm
  fsm:
    initial_state: only
    final_states: [only]
    states:
      only: {agent: quick, input: {}}
"""
EVERY_SECOND = {"every": "1s", "overlap": "allow", "catch_up": "1h"}


async def fired_each_moment_once(client, schedule: str) -> None:
    """Every moment between the first and the last has exactly one execution, and the schedule counted each."""
    await client.pause_schedule(schedule)
    found = await client.schedule(schedule)
    executions = (await client.executions(workflow="quick", limit=200)).items
    assert len(executions) == found.fired
    assert all(fire.outcome == "started" for fire in found.recent)
    moments = sorted(parse_rfc3339(fire.at) for fire in found.recent)
    assert {later - earlier for earlier, later in pairwise(moments)} == {1000}
    assert found.missed == found.skipped == 0


async def test_a_killed_control_plane_makes_up_for_what_it_missed_and_repeats_nothing(world):
    async with world() as here:
        await here.client.push_workflow(QUICK)
        await here.client.create_schedule("tick", "quick", **EVERY_SECOND)

        for kills in (1, 2):
            await fired(here.client, 2 * kills)
            here.platform.control_plane.kill()
        await fired(here.client, 7)

        await fired_each_moment_once(here.client, "tick")


async def test_replicas_share_schedules_and_the_one_that_stays_goes_on_for_the_other(world, postgres_dsn, tmp_path):
    async with (
        world(AF_DB_DSN=postgres_dsn, AF_LEASE_S=LEASE_S) as here,
        second_control_plane(here, postgres_dsn, tmp_path) as (second, client),
    ):
        await eventually(lambda: shards_of(tmp_path / "second.log") == 8, within_s=20)
        await here.client.push_workflow(QUICK)
        for number in range(4):  # some of them are the second one's to watch
            await client.create_schedule(f"tick-{number}", "quick", **EVERY_SECOND, paused=number > 0)
        await fired(here.client, 2, "tick-0")

        second.kill()

        await fired(here.client, 6, "tick-0")
        await fired_each_moment_once(here.client, "tick-0")


async def fired(client, times: int, schedule: str = "tick") -> None:
    async def there() -> bool:
        try:
            return (await client.schedule(schedule)).fired >= times
        except Exception:  # noqa: BLE001 - the control plane is being killed
            return False

    await eventually(there, within_s=30)
