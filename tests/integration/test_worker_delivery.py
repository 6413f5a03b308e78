"""A mailbox on the real bus: what JetStream does with steps that are long, doubled, or left behind."""

import asyncio
from contextlib import asynccontextmanager

import msgspec
import pytest

from agentflow.bus import subjects
from agentflow.bus.nats_jetstream import jetstream
from agentflow.clock import SystemClock
from agentflow.contracts.message import seal
from agentflow.contracts.step import Heartbeat, HeldStep, StepRequest, StepResult
from agentflow.ids import UlidSource
from agentflow.testing import eventually
from worker.agents.function import FunctionAgent
from worker.mailbox import Mailbox
from worker.reporter import Reporter
from worker.runtime import Runtime, StopRequests

ACK_WAIT_S = 1.0


@pytest.fixture
async def bus(nats):
    async with jetstream(nats.url, name="test") as bus:
        yield bus


@pytest.fixture
def ids():
    return UlidSource(SystemClock().now_ms)


@pytest.fixture
def send(bus, ids):
    async def published(path: str, *, dedup: str | None = None, timeout_ms: int = 30_000) -> None:
        request = StepRequest("exec_1", "support", 3, path, path, 1, {"n": 1}, timeout_ms, f"default/exec_1/{path}")
        message = seal(
            id=ids.message(),
            trace_id=ids.trace(),
            span_id="00f067aa0ba902b7",
            sender="orchestrator",
            to="worker",
            type="request",
            payload=msgspec.to_builtins(request),
            metadata={"execution_id": "exec_1"},
            at_ms=0,
        )
        await bus.publish(subjects.agent_in("default", "echo"), message, dedup_id=dedup or path, confirm=True)

    return published


@pytest.fixture
def open_mailbox(bus, ids):
    @asynccontextmanager
    async def opened(function, *, concurrency=4, on=bus, ack_wait_s=ACK_WAIT_S):
        mailbox = Mailbox(
            "echo",
            FunctionAgent("echo", function, concurrency=concurrency),
            pool="default",
            concurrency=concurrency,
            ack_wait_s=ack_wait_s,
            bus=on,
            reporter=Reporter(bus=on, clock=SystemClock(), spool=None),
            worker="wrk_1",
            ids=ids,
            clock=SystemClock(),
        )
        await mailbox.start()
        try:
            yield mailbox
        finally:
            await mailbox.stop_taking()
            await mailbox.close()

    return opened


@pytest.fixture
def results(bus):
    async def read() -> list[StepResult]:
        return [message.read(StepResult) async for message in bus.replay(subjects.MESSAGES)]

    return read


@pytest.fixture
def unacked(bus):
    async def count() -> int:
        backlog = await bus.backlog(subjects.agent_mailbox("default", "echo", concurrency=4, ack_wait_s=ACK_WAIT_S))
        return backlog.waiting + backlog.unacked

    return count


async def test_a_step_goes_in_and_its_result_comes_out_once(send, open_mailbox, results, unacked):
    async def echo(input):
        return input

    async with open_mailbox(echo):
        await send("a")
        await eventually(results)
        await eventually(lambda: is_zero(unacked))

    (result,) = await results()
    assert (result.execution_id, result.path, result.attempt, result.output) == ("exec_1", "a", 1, {"n": 1})


async def test_a_step_that_runs_past_the_ack_wait_is_kept_and_not_done_twice(send, open_mailbox, results, unacked):
    begun = []
    loop = asyncio.get_running_loop()

    async def slow(input):
        began = loop.time()
        begun.append(began)
        await eventually(lambda: loop.time() - began > 3 * ACK_WAIT_S)
        return "at last"

    async with open_mailbox(slow):
        await send("a")
        await eventually(results, within_s=10)
        await eventually(lambda: is_zero(unacked))

    assert len(begun) == 1
    assert [result.output for result in await results()] == ["at last"]


async def test_a_step_sent_twice_while_it_runs_is_done_once_and_both_messages_leave_the_queue(
    send, open_mailbox, results, unacked
):
    begun = []
    may_end = asyncio.Event()

    async def waits(input, context):
        begun.append(context.step)
        await may_end.wait()

    async with open_mailbox(waits):
        await send("a", dedup="first")
        await send("a", dedup="second")
        await send("b")
        await eventually(lambda: "b" in begun)  # so both before it are here
        may_end.set()
        await eventually(lambda: is_zero(unacked))

    assert begun == ["a", "b"]
    assert [result.path for result in await results()] == ["a", "b"]


async def test_what_a_closing_worker_has_not_finished_is_reported_at_once_and_nobody_runs_it_as_it_was(
    nats, send, open_mailbox, results, unacked
):
    begun = []

    async def hangs(input):
        begun.append(1)
        await asyncio.Event().wait()

    async def echo(input):
        return "by another"

    async with jetstream(nats.url, name="other") as other, open_mailbox(hangs, on=other):
        await send("a")
        await eventually(lambda: begun)
    async with open_mailbox(echo):
        await eventually(lambda: is_zero(unacked))

    assert [result.fault.code for result in await results()] == ["worker_stopped"]


async def test_of_a_live_worker_whose_signs_are_not_heard_and_the_one_that_finds_its_step_one_is_believed(
    nats, send, open_mailbox, results, unacked
):
    """F-9."""
    begun = []
    may_end = asyncio.Event()

    async def slow(input):
        begun.append(1)
        await may_end.wait()
        return "late"

    async def echo(input):
        begun.append(2)
        return "by another"

    async with (
        jetstream(nats.url, name="unheard") as other,
        open_mailbox(slow, on=other, concurrency=1, ack_wait_s=300),  # so it says nothing for a hundred seconds
    ):
        await send("a")
        await eventually(lambda: begun)
        async with open_mailbox(echo):  # this one's ack wait holds from here on, and only it has room
            await eventually(results, within_s=10)
            may_end.set()
            await eventually(lambda: is_zero(unacked), within_s=10)

    (told,) = await results()  # the stream takes the first word about an attempt and no second one
    assert told.fault.code == "worker_lost"
    assert begun == [1]


async def test_a_drained_runtime_finishes_what_runs_beats_and_says_that_it_is_leaving(bus, ids, send, results):
    beats: list[Heartbeat] = []
    await bus.listen_pools(subjects.HEARTBEATS, lambda _, raw: beats.append(msgspec.json.decode(raw, type=Heartbeat)))
    may_end = asyncio.Event()

    async def waits(input):
        await may_end.wait()
        return "finished"

    clock = SystemClock()
    reporter = Reporter(bus=bus, clock=clock, spool=None)
    mailbox = Mailbox(
        "echo",
        FunctionAgent("echo", waits, concurrency=1),
        pool="default",
        concurrency=1,
        ack_wait_s=ACK_WAIT_S,
        bus=bus,
        reporter=reporter,
        worker="wrk_1",
        ids=ids,
        clock=clock,
    )
    stop = StopRequests()
    runtime = Runtime([mailbox], bus=bus, reporter=reporter, clock=clock, worker="wrk_1", pool="default", drain_s=10)
    serving = asyncio.create_task(runtime.serve(stop))
    await send("a")
    await send("b")
    await eventually(lambda: mailbox.running == 1)
    assert (await eventually(lambda: beats))[0].agents == {"echo": 0}
    await eventually(lambda: HeldStep("exec_1", "a", 1) in beats[-1].steps)

    stop.ask()
    may_end.set()
    await serving

    assert [result.output for result in await results() if result.fault is None] == ["finished"]
    await eventually(lambda: beats[-1].leaving)


@pytest.mark.parametrize("urgently", [True, False])
async def test_a_drain_ends_when_patience_does_or_at_the_second_request(bus, ids, send, results, urgently):
    begun = asyncio.Event()

    async def hangs(input):
        begun.set()
        await asyncio.Event().wait()

    clock = SystemClock()
    reporter = Reporter(bus=bus, clock=clock, spool=None)
    mailbox = Mailbox(
        "echo",
        FunctionAgent("echo", hangs, concurrency=1),
        pool="default",
        concurrency=1,
        ack_wait_s=ACK_WAIT_S,
        bus=bus,
        reporter=reporter,
        worker="wrk_1",
        ids=ids,
        clock=clock,
    )
    stop = StopRequests()
    drain_s = 60.0 if urgently else 0.05
    runtime = Runtime(
        [mailbox], bus=bus, reporter=reporter, clock=clock, worker="wrk_1", pool="default", drain_s=drain_s
    )
    serving = asyncio.create_task(runtime.serve(stop))
    await send("a")
    await begun.wait()

    stop.ask()
    if urgently:
        stop.ask()
    async with asyncio.timeout(5):
        await serving

    assert [result.fault.code for result in await results()] == ["worker_stopped"]


async def is_zero(count) -> bool:
    return await count() == 0
