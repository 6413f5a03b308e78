"""A bus that misbehaves where no error shows it: stalled consumers, and everybody coming back at once."""

import asyncio
import json
from contextlib import AsyncExitStack

import pytest

from agentflow.bus import subjects
from agentflow.bus.nats_jetstream import jetstream, reconnect_pause_s
from agentflow.contracts.message import seal
from agentflow.testing import eventually

ECHO = subjects.agent_mailbox("default", "echo", concurrency=4, ack_wait_s=30)


def message(number: int):
    return seal(
        id=f"{number:026d}",
        trace_id="0" * 32,
        span_id="0" * 16,
        sender="test",
        to="echo",
        type="request",
        payload={"n": number},
        metadata={},
        at_ms=0,
    )


async def test_a_stalled_consumer_is_noticed_made_anew_and_reported_and_what_was_done_is_not_handed_out_again(
    nats, capsys
):
    """A paused consumer is what a stalled one looks like: it answers, messages wait, none is handed out."""
    heard = []

    def take(delivery):
        heard.append(delivery.message.read(dict)["n"])
        delivery.ack()

    async with jetstream(nats.url, name="test", stall_after_s=1.0) as bus:
        await bus.subscribe(ECHO, take)
        await bus.publish(ECHO.subjects[0], message(1), dedup_id="1", confirm=True)
        await eventually(lambda: heard == [1])
        pause = json.dumps({"pause_until": "2126-01-01T00:00:00Z"}).encode()
        answer = json.loads(await bus.request(f"$JS.API.CONSUMER.PAUSE.{ECHO.stream}.{ECHO.name}", pause, within_s=5))
        assert answer["paused"]

        await bus.publish(ECHO.subjects[0], message(2), dedup_id="2", confirm=True)

        await eventually(lambda: heard == [1, 2], within_s=20)
        assert "bus.consumer_stalled" in capsys.readouterr().out
        await bus.publish(ECHO.subjects[0], message(3), dedup_id="3", confirm=True)
        await eventually(lambda: heard == [1, 2, 3])


async def test_many_connections_come_back_after_a_restart_of_the_server(nats):
    """F-19, as far as one test process goes."""
    async with AsyncExitStack() as stack:
        buses = [await stack.enter_async_context(jetstream(nats.url, name=f"wrk_{n}")) for n in range(40)]
        heard = set()
        for number, bus in enumerate(buses):
            await bus.listen("hello", lambda _, number=number: heard.add(number))

        await nats.restart()

        async with asyncio.timeout(10):
            await eventually(lambda: all(bus.connected for bus in buses), within_s=10)
        await eventually(lambda: has_everybody(buses[0], heard), within_s=5)


@pytest.mark.parametrize("failures", [0, 1, 5, 1000])
def test_pauses_before_reconnecting_grow_up_to_a_bound_and_differ_by_chance(failures):
    shortest, longest = reconnect_pause_s(failures, 0.0), reconnect_pause_s(failures, 1.0)

    assert 0 < shortest < longest <= 2.1
    assert reconnect_pause_s(failures + 1, 1.0) >= longest


async def has_everybody(bus, heard):
    await bus.broadcast("hello", b"")
    return len(heard) == 40
