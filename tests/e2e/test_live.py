"""The live feed as a watcher meets it, over a real WebSocket and real server-sent events."""

import asyncio
import json
import socket as sockets
from contextlib import asynccontextmanager

import httpx
import pytest
import websockets

WORKFLOW = """
apiVersion: agentflow/v1
kind: Workflow
metadata: {{name: {name}, version: 1.0.0}}
spec:
  planner: fsm
  fsm:
    initial_state: hold
    final_states: [hold]
    states:
      hold: {{wait: {{signal: go}}, timeout: 1h}}
"""


@pytest.fixture
def watching(platform):
    @asynccontextmanager
    async def opened(**options):
        url = platform.api_url.replace("http://", "ws://") + "/api/v1/ws"
        headers = {"Authorization": f"Bearer {platform.api_key}", **options.pop("additional_headers", {})}
        async with websockets.connect(url, proxy=None, additional_headers=headers, **options) as socket:
            yield socket

    return opened


async def say(socket, **message):
    await socket.send(json.dumps(message))


async def hear(socket):
    async with asyncio.timeout(20):
        return json.loads(await socket.recv())


async def events(socket, count):
    """The next so many events; signs of life between them are passed over."""
    found = []
    while len(found) < count:
        message = await hear(socket)
        assert message["type"] in ("event", "alive", "subscribed"), message
        if message["type"] == "event":
            found.append(message)
    return found


async def story(api, execution):
    """What the execution's own list of events says."""
    return [(event.version, event.type) for event in await api.history(execution)]


def told(messages):
    return [(message["event"]["version"], message["event"]["type"]) for message in messages]


async def started(api, name):
    await api.push_workflow(WORKFLOW.format(name=name))
    return (await api.execute(name, {})).execution_id


async def test_an_execution_is_watched_from_its_first_event_to_its_last(api, watching):
    execution = await started(api, "watched")
    async with watching() as socket:
        await say(socket, type="subscribe", id="one", execution=execution, after=0)
        assert (await hear(socket))["type"] == "subscribed"
        await api.pause(execution)
        await api.resume(execution)
        await api.signal(execution, "go")
        expected = await story(api, execution)
        messages = await events(socket, len(expected))

    assert told(messages) == expected
    assert {message["id"] for message in messages} == {"one"}
    assert [message["seq"] for message in messages] == sorted({message["seq"] for message in messages})
    assert {message["event"]["execution_id"] for message in messages} == {execution}


async def test_who_comes_back_with_the_last_number_misses_and_repeats_nothing(api, watching):
    execution = await started(api, "resumed")
    seen, last = [], 0
    for order in (api.pause, api.resume, api.pause, api.cancel):
        before = len(await story(api, execution))
        async with watching() as socket:
            await say(socket, type="subscribe", execution=execution, after=last)
            seen += await events(socket, before - len(seen))
            last = seen[-1]["seq"]
        await order(execution)
    expected = await story(api, execution)
    async with watching() as socket:
        await say(socket, type="subscribe", execution=execution, after=last)
        seen += await events(socket, len(expected) - len(seen))

    assert told(seen) == expected


async def test_a_workflow_and_the_whole_tenant_are_watched_at_once(api, watching):
    await api.push_workflow(WORKFLOW.format(name="crowd-a"))
    await api.push_workflow(WORKFLOW.format(name="crowd-b"))
    async with watching() as socket:
        await say(socket, type="subscribe", id="flow", workflow="crowd-a")
        assert (await hear(socket))["id"] == "flow"
        await say(socket, type="subscribe", id="all")
        assert (await hear(socket))["id"] == "all"
        first = (await api.execute("crowd-a", {})).execution_id
        second = (await api.execute("crowd-b", {})).execution_id
        seen = {"flow": set(), "all": set()}
        while not {first, second} <= seen["all"] or first not in seen["flow"]:
            for message in await events(socket, 1):
                seen[message["id"]].add(message["event"]["execution_id"])
        await say(socket, type="unsubscribe", id="all")
        while (message := await hear(socket))["type"] != "unsubscribed":
            assert message["type"] in ("event", "alive")

    assert second not in seen["flow"]


async def test_what_is_not_understood_or_not_there_is_said_and_the_connection_stays(api, watching):
    execution = await started(api, "forgiving")
    async with watching() as socket:
        for nonsense in ("{", "[]", '{"type": "dance"}', '{"type": "subscribe", "afer": 1}'):
            await socket.send(nonsense)
            assert ((answer := await hear(socket))["type"], answer["code"]) == ("error", "AF1002")
            assert answer["hint"]
        await say(socket, type="subscribe", id="x", execution="exec_nowhere")
        answer = await hear(socket)
        assert (answer["type"], answer["id"], answer["code"]) == ("error", "x", "AF1007")
        await say(socket, type="subscribe", id="x", execution=execution, after=0)
        assert (await hear(socket))["type"] == "subscribed"


async def test_a_page_of_another_origin_cannot_watch(watching):
    with pytest.raises(websockets.exceptions.InvalidStatus) as refused:
        async with watching(origin="https://evil.example"):
            pass

    assert refused.value.response.status_code == 403


async def test_the_same_feed_comes_as_server_sent_events_and_goes_on_from_the_last_id(api, platform):
    execution = await started(api, "streamed")
    await api.pause(execution)
    expected = await story(api, execution)
    async with httpx.AsyncClient(
        base_url=f"{platform.api_url}/api/v1",
        trust_env=False,
        timeout=20,
        headers={"Authorization": f"Bearer {platform.api_key}"},
    ) as http:

        async def read(count, **headers):
            found = []
            parameters = {"execution": execution, "after": 0}
            async with http.stream("GET", "/stream", params=parameters, headers=headers) as answer:
                assert answer.headers["content-type"].startswith("text/event-stream")
                async for line in answer.aiter_lines():
                    if line.startswith("data: "):
                        found.append(json.loads(line.removeprefix("data: ")))
                        if len(found) == count:
                            return found
            return found

        first = await read(2)
        rest = await read(len(expected) - 2, **{"Last-Event-ID": str(first[-1]["seq"])})
        missing = await http.get("/stream", params={"execution": "exec_nowhere"})

    assert [(event["version"], event["type"]) for event in first + rest] == expected
    assert missing.status_code == 404


async def test_a_watcher_who_does_not_read_holds_up_nobody(api, watching, platform):
    """It fills its own socket and no more; who watches beside it sees everything."""
    execution = await started(api, "unread")
    host, port = platform.api_url.removeprefix("http://").split(":")
    small = sockets.socket()
    small.setsockopt(sockets.SOL_SOCKET, sockets.SO_RCVBUF, 4096)
    small.connect((host, int(port)))
    small.setblocking(False)
    async with watching(sock=small, max_queue=1) as idle, watching() as socket:
        await say(idle, type="subscribe")
        await say(socket, type="subscribe", execution=execution, after=0)
        for number in range(30):
            await api.signal(execution, "noise", {"n": number, "text": "x" * 20_000})
        expected = await story(api, execution)
        messages = await events(socket, len(expected))

    assert told(messages) == expected
