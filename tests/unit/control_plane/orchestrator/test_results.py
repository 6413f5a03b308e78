"""Results as they come in, from the stream or handed over, many at a time: confirmed only once they are durable."""

import asyncio

import msgspec
import pytest

from agentflow.contracts.message import encode, seal
from agentflow.contracts.step import StepResult
from agentflow.execution.messages import Stamp
from agentflow.execution.state import ExecutionState
from agentflow.ids import ExecutionId, MessageId, StepPath, TraceId, WorkerId
from agentflow.ports import ShardLost
from control_plane.orchestrator.children import UnknownExecution
from control_plane.orchestrator.inbox import Inbox
from control_plane.orchestrator.results import Results


@pytest.fixture
def inbox():
    return Inbox()


@pytest.fixture
def results(inbox):
    return Results(inbox, lambda: Stamp(1, 0.5))


def result(number: int) -> bytes:
    done = StepResult(ExecutionId(f"exec_{number}"), StepPath("s"), 1, WorkerId("wrk"), 1, 2, {"n": number})
    sealed = seal(
        id=MessageId(f"msg_{number}"),
        trace_id=TraceId("t"),
        span_id="s",
        sender="worker",
        to="orchestrator",
        type="response",
        payload=msgspec.to_builtins(done),
        metadata={},
        at_ms=1,
    )
    return encode(sealed)


async def handed_over(results: Results, *raw: bytes) -> asyncio.Task[bytes]:
    answering = asyncio.create_task(results.hand_over("acme", b"[%b]" % b",".join(raw)))
    await asyncio.sleep(0)
    return answering


async def test_what_is_handed_over_is_answered_only_when_the_last_of_it_is_durable(results, inbox):
    answering = await handed_over(results, result(0), result(1))
    first, second = inbox.take()
    assert first.pool == second.pool == "acme"

    first.settled(ExecutionState())
    await asyncio.sleep(0)
    assert not answering.done()
    second.settled(ExecutionState())

    assert await answering == b"[]"


async def test_the_answer_names_what_was_not_taken(results, inbox):
    answering = await handed_over(results, result(0), result(1), result(2))
    first, second, third = inbox.take()

    first.settled(ExecutionState())
    second.refused(ShardLost([3]))
    third.refused(UnknownExecution(third.execution))  # nobody will ever want it

    assert await answering == b"[1]"


async def test_a_result_whose_seal_is_broken_is_not_taken_and_the_others_are(results, inbox):
    answering = await handed_over(results, result(0).replace(b'"n":0', b'"n":7'), result(1))
    (whole,) = inbox.take()
    whole.settled(ExecutionState())

    assert await answering == b"[0]"


async def test_nothing_handed_over_is_answered_at_once(results):
    assert await results.hand_over("acme", b"[]") == b"[]"
