"""SIGKILL the real processes in the middle of an execution: it completes, with each outcome recorded once."""

import asyncio

from agentflow.testing import eventually


async def completed(world, execution):
    """The whole story of an execution, once it has ended."""
    return [event async for event in world.client.follow(execution)]


async def test_a_killed_workers_step_is_run_again_and_the_execution_completes(world, each_outcome_once):
    async with world() as here:
        started = await here.client.execute("breakable", {"n": 1})
        await eventually(lambda: here.runs(started.execution_id)["patient"] == 1, within_s=10)

        here.platform.worker.kill()
        here.let_go()

        each_outcome_once(await completed(here, started.execution_id))
        ended = await here.client.execution(started.execution_id)
        assert (ended.status, ended.output) == ("completed", {"n": 4})
        assert here.runs(started.execution_id) == {"quick": 2, "patient": 2}, "only the step under way runs again"


async def test_a_killed_control_plane_takes_up_its_executions_where_they_were(world, each_outcome_once):
    async with world() as here:
        started = await here.client.execute("breakable", {"n": 1})
        await eventually(lambda: here.runs(started.execution_id)["patient"] == 1, within_s=10)

        here.platform.control_plane.kill()
        here.let_go()  # the result is published while nobody is there to take it

        each_outcome_once(await completed(here, started.execution_id))
        assert here.runs(started.execution_id) == {"quick": 2, "patient": 1}, "nothing that finished runs again"


async def test_both_planes_and_the_bus_killed_at_once_lose_nothing(world, each_outcome_once):
    async with world() as here:
        started = await here.client.execute("breakable", {"n": 1})
        await eventually(lambda: here.runs(started.execution_id)["patient"] == 1, within_s=10)

        for process in (here.platform.nats, here.platform.worker, here.platform.control_plane):
            process.kill()
        here.let_go()

        each_outcome_once(await completed(here, started.execution_id))


async def test_many_executions_survive_a_control_plane_that_is_killed_again_and_again(world, each_outcome_once):
    async with world() as here:
        here.let_go()
        accepted: list[str] = []

        async def start_and_kill() -> None:
            before = len(here.all_runs())
            starts = [here.client.execute("breakable", {"n": n}) for n in range(20)]
            answers = asyncio.gather(*starts, return_exceptions=True)
            await eventually(lambda: len(here.all_runs()) > before + 5, within_s=10)
            pid = here.platform.control_plane.pid
            here.platform.control_plane.kill()
            # An error may mean accepted or not; a success must mean accepted.
            accepted.extend(answer.execution_id for answer in await answers if not isinstance(answer, Exception))
            await eventually(lambda: here.platform.control_plane.pid != pid, within_s=20)
            await eventually(here.client.ready, within_s=20)

        for _ in range(3):
            await start_and_kill()

        assert accepted
        for execution in accepted:
            each_outcome_once(await completed(here, execution))
        left = await eventually(lambda: _none_running(here.client), within_s=30)
        assert left, "executions whose start was not confirmed end too, if they were committed"


async def _none_running(client):
    return (await client.executions(status="running")).total_count == 0
