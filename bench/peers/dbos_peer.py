"""DBOS on PostgreSQL: workflows in this process (`direct`), or through its durable queue (`queue`)."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version

import harness
from dbos import DBOS


@DBOS.step()
async def step(payload: harness.Payload) -> harness.Payload:
    return harness.step(payload)


@DBOS.workflow()
async def line_of(steps: int, payload: harness.Payload) -> harness.Payload:
    for _ in range(steps):
        payload = await step(payload)
    return payload


@DBOS.workflow()
async def fan_of(width: int, payload: harness.Payload) -> int:
    return len(await asyncio.gather(*(step({**payload, "i": number}) for number in range(width))))


@DBOS.step()
def step_of_child(payload: harness.Payload) -> harness.Payload:
    return harness.step(payload)


@DBOS.workflow()
def child(payload: harness.Payload) -> harness.Payload:
    return step_of_child(payload)


@DBOS.workflow()
def queued_fan_of(width: int, payload: harness.Payload) -> int:
    handles = [DBOS.enqueue_workflow("fan", child, {**payload, "i": number}) for number in range(width)]
    return len([handle.get_result() for handle in handles])


async def main() -> None:
    harness.stop_at_sigterm()
    url = harness.postgres()
    DBOS(config={"name": "peers", "system_database_url": url, "log_level": "ERROR", "run_admin_server": False})
    DBOS.launch()
    queued = harness.OPTIONS["mode"] == "queue"
    if queued:
        for queue in ("line", "fan"):
            await DBOS.register_queue_async(queue)
    threads = ThreadPoolExecutor(256)

    async def line(steps: int, start: int) -> harness.Payload:
        if queued:
            return await (await DBOS.enqueue_workflow_async("line", line_of, steps, harness.first(start))).get_result()
        return await (await DBOS.start_workflow_async(line_of, steps, harness.first(start))).get_result()

    async def fan(width: int) -> int:
        if queued:
            return await asyncio.get_running_loop().run_in_executor(
                threads, lambda: DBOS.start_workflow(queued_fan_of, width, harness.first()).get_result()
            )
        return await (await DBOS.start_workflow_async(fan_of, width, harness.first())).get_result()

    await harness.measure(line, fan, version=version("dbos"), durable="each step committed to PostgreSQL")
    DBOS.destroy()


asyncio.run(main())
