"""Results as they come in, from the stream or handed over, many at a time: confirmed only once they are durable."""

import asyncio

import msgspec
import pytest

from agentflow import limits
from agentflow.clock import ControlledClock
from agentflow.contracts.bundle import ResultsHanded, ResultsTaken, bundled, opened
from agentflow.contracts.message import Message, TamperedMessage, unsealed
from agentflow.contracts.step import StepResult
from agentflow.execution.messages import Stamp
from agentflow.execution.state import ExecutionState
from agentflow.ids import AgentName, ExecutionId, MessageId, StepPath, TraceId, WorkerId
from agentflow.ports import ShardLost
from control_plane.orchestrator.children import UnknownExecution
from control_plane.orchestrator.inbox import Inbox
from control_plane.orchestrator.results import Results


@pytest.fixture
def inbox():
    return Inbox()


@pytest.fixture
def clock():
    return ControlledClock()


@pytest.fixture
def results(inbox, clock):
    return Results(inbox, lambda: Stamp(1, 0.5), clock)


def result(number: int) -> Message:
    done = StepResult(ExecutionId(f"exec_{number}"), StepPath("s"), 1, WorkerId("wrk"), 1, 2, {"n": number})
    return unsealed(
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


def handed_over(results: Results, *handed: Message, **room: int) -> asyncio.Future[bytes]:
    return results.hand_over("acme", bundled(ResultsHanded(list(handed), room)))


async def answer_of(answering) -> ResultsTaken:
    return opened(await answering, ResultsTaken)


def step(number: int, **changes) -> Message:
    fields = {"to": "noop", "payload": {"n": number}} | changes
    return unsealed(
        id=MessageId(f"step_{number}"),
        trace_id=TraceId("t"),
        span_id="s",
        sender="orchestrator",
        type="request",
        metadata={},
        at_ms=1,
        **fields,
    )


async def test_what_is_handed_over_is_answered_only_when_the_last_of_it_is_durable(results, inbox):
    answering = handed_over(results, result(0), result(1))
    first, second = inbox.take()
    assert first.pool == second.pool == "acme"

    first.settled(ExecutionState())
    await asyncio.sleep(0)
    assert not answering.done()
    second.settled(ExecutionState())

    assert await answer_of(answering) == ResultsTaken([])


async def test_the_answer_names_what_was_not_taken(results, inbox):
    answering = handed_over(results, result(0), result(1), result(2))
    first, second, third = inbox.take()

    first.settled(ExecutionState())
    second.refused(ShardLost([3]))
    third.refused(UnknownExecution(third.execution))  # nobody will ever want it

    assert await answer_of(answering) == ResultsTaken([1])


async def test_of_handedwhose_seal_is_broken_nothing_is_taken(results, inbox):
    whole = bundled(ResultsHanded([result(0), result(1)]))

    with pytest.raises(TamperedMessage):  # unanswered: the worker gives them to the stream
        results.hand_over("acme", whole.replace(b'"n":0', b'"n":7'))

    assert inbox.take() == []


async def test_nothing_handed_over_is_answered_at_once(results):
    assert await answer_of(handed_over(results)) == ResultsTaken([])


async def test_steps_that_follow_go_back_with_the_answer_as_far_as_there_is_room(results, inbox):
    answering = handed_over(results, result(0), result(1), noop=1)
    first, second = inbox.take()
    assert first.back is second.back

    assert first.back.take("acme", AgentName("noop"), step(1))
    assert not first.back.take("acme", AgentName("noop"), step(2))
    first.settled(ExecutionState())
    second.settled(ExecutionState())

    (sent,) = (await answer_of(answering)).steps
    assert sent.id == "step_1"
    assert not first.back.take("acme", AgentName("noop"), step(3)), "the answer is on its way"


async def test_a_step_of_another_agent_or_pool_does_not_go_back_that_way(results, inbox):
    handed_over(results, result(0), noop=1)
    (arrival,) = inbox.take()

    assert not arrival.back.take("acme", AgentName("other"), step(1))
    assert not arrival.back.take("globex", AgentName("noop"), step(1))


async def test_nothing_goes_back_with_an_answer_that_comes_late(results, inbox, clock):
    handed_over(results, result(0), noop=1)
    (arrival,) = inbox.take()

    await clock.advance(limits.STEPS_BACK_S + 0.01)

    assert not arrival.back.take("acme", AgentName("noop"), step(1)), "the worker may have given up waiting"


async def test_what_is_too_large_for_an_answer_does_not_go_back_with_it(results, inbox):
    handed_over(results, result(0), noop=9)
    (arrival,) = inbox.take()
    large = {"text": "x" * (limits.STEPS_BACK_BYTES // 2)}

    assert arrival.back.take("acme", AgentName("noop"), step(1, payload=large))
    assert not arrival.back.take("acme", AgentName("noop"), step(2, payload=large))
    assert arrival.back.take("acme", AgentName("noop"), step(3))
