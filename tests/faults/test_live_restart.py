"""A watcher whose control plane is killed sees every event once and in order all the same."""

import asyncio
import json

import websockets

from agentflow.testing import eventually


async def watch(platform, seen):
    """As a client should: reconnect, and go on behind the last number, until cancelled."""
    last = 0
    while True:
        try:
            url = platform.api_url.replace("http://", "ws://") + "/api/v1/ws"
            headers = {"Authorization": f"Bearer {platform.api_key}"}
            async with websockets.connect(url, proxy=None, additional_headers=headers) as socket:
                await socket.send(json.dumps({"type": "subscribe", "after": last}))
                async for raw in socket:
                    message = json.loads(raw)
                    assert message["type"] in ("subscribed", "alive", "event"), message
                    if message["type"] == "event":
                        assert message["seq"] > last
                        last = message["seq"]
                        event = message["event"]
                        seen.setdefault(event["execution_id"], []).append((event["version"], event["type"]))
        except (OSError, websockets.exceptions.WebSocketException):
            await asyncio.sleep(0.05)


async def test_every_event_is_seen_once_and_in_order_through_restarts_of_the_control_plane(world):
    async with world() as here:
        here.let_go()
        seen = {}
        watching = asyncio.create_task(watch(here.platform, seen))
        accepted = []
        for _ in range(2):
            starts = [here.client.execute("breakable", {"n": n}) for n in range(10)]
            answers = asyncio.gather(*starts, return_exceptions=True)
            before = len(here.all_runs())
            await eventually(lambda before=before: len(here.all_runs()) > before + 3, within_s=10)
            pid = here.platform.control_plane.pid
            here.platform.control_plane.kill()
            accepted += [answer.execution_id for answer in await answers if not isinstance(answer, Exception)]
            await eventually(lambda pid=pid: here.platform.control_plane.pid != pid, within_s=20)
            await eventually(here.client.ready, within_s=20)
        assert accepted
        stories = {}
        for execution in accepted:
            stories[execution] = [(event.version, event.type) async for event in here.client.follow(execution)]

        await eventually(lambda: all(len(seen.get(one, ())) >= len(told) for one, told in stories.items()), within_s=20)
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)

        for execution, story in stories.items():
            assert seen[execution] == story
        for versions in seen.values():
            assert [version for version, _ in versions] == list(range(1, len(versions) + 1))
