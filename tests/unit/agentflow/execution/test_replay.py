"""Recorded executions decided again: every one comes out as it was, with sockets blocked; a changed one does not.

That each run of every other test here replays as well is seen to by `conftest`.
"""

import hashlib
import random
import socket

import msgspec
import pytest

from agentflow.contracts.artifact import ArtifactRef
from agentflow.contracts.claims import Claim
from agentflow.contracts.step import StepFault
from agentflow.execution import events as happened
from agentflow.execution import messages as m
from agentflow.execution.events import Retry
from agentflow.execution.messages import Stamp
from agentflow.execution.program import Finish
from agentflow.execution.state import next_wakeup
from agentflow.ids import WorkerId
from planners.kinds import compile_workflow
from tests.unit.agentflow.execution.replayed import digest_of, replayed
from tests.unit.agentflow.execution.scripted import Run, Script, step
from tests.unit.planners.random_machines import Day, grown


@pytest.fixture(autouse=True)
def no_way_out(monkeypatch):
    def refused(*_):
        raise AssertionError("a replay opened a socket")

    monkeypatch.setattr(socket, "socket", refused)
    monkeypatch.setattr(socket, "create_connection", refused)


@pytest.mark.parametrize("seed", range(100))
def test_an_exact_replay_ends_with_the_same_digest(seed):
    text = grown(seed)
    lived = Day(text, seed, meddle=True).live()

    digest, divergence = replayed(lived.log, compile_workflow(text).program)

    assert divergence is None
    assert digest == digest_of(lived.log)


@pytest.mark.parametrize("seed", range(30))
def test_no_single_event_can_be_altered_unnoticed(seed):
    text = grown(seed)
    log = Day(text, seed).live().log
    program = compile_workflow(text).program
    chance = random.Random(seed)
    at = chance.choice([at for at, event in enumerate(log) if isinstance(event, happened.StepScheduled)] or [0])
    event = log[at]
    if isinstance(event, happened.StepScheduled):
        altered = [*log[:at], msgspec.structs.replace(event, timeout_ms=event.timeout_ms + 1), *log[at + 1 :]]
        _, divergence = replayed(altered, program)
        assert divergence is not None
        assert (divergence.version, divergence.path) == (at + 1, event.path)


def test_another_program_diverges_where_it_first_does_something_else():
    before = Script((step("a"),), a=(step("b"),))
    run = Run(before)
    run.report("a", 1)
    run.report("b", 2)

    _, divergence = replayed(run.log, Script((step("a"),), a=(step("b", input="new"),)))

    assert divergence is not None
    assert (divergence.version, divergence.path) == (4, "b")
    assert isinstance(divergence.expected, happened.StepScheduled)
    assert isinstance(divergence.got, happened.StepScheduled)
    assert (divergence.expected.input, divergence.got.input) == (None, "new")


def test_a_program_that_ends_earlier_or_later_diverges():
    run = Run(Script((step("a"),), a=(step("b"),)))
    run.report("a", 1)
    run.report("b", 2)

    _, earlier = replayed(run.log, Script((step("a"),)))
    _, later = replayed(run.log, Script((step("a"),), a=(step("b"),), b=(step("c"),)))

    assert earlier is not None
    assert isinstance(earlier.got, happened.ExecutionCompleted)
    assert later is not None
    assert isinstance(later.expected, happened.ExecutionCompleted)


def test_a_program_that_cannot_answer_is_a_divergence_and_no_crash():
    run = Run(Script((step("a"),), a=(step("b"),)))
    run.report("a", 1)

    _, divergence = replayed(run.log, Script((step("a"),), a=(step("b"), step("b"))))

    assert divergence is not None
    assert "asked for `b` while it was open" in divergence.why


@pytest.mark.parametrize("seed", range(20))
def test_delays_left_to_chance_come_out_as_they_were(seed):
    chance = random.Random(seed)
    rules = [Retry(3, chance.randint(1, 5_000), 2.0, 60_000) for _ in range(4)]
    program = Script(tuple(step(f"s{at}", retry=rule) for at, rule in enumerate(rules)))
    run = Run(program)
    run.now = 6_000  # all time out in one decision, with one chance
    run.give(m.TimeReached(Stamp(6_000, chance.random())))
    assert sum(isinstance(event, happened.StepFailed) for event in run.log) == 4
    failed = StepFault("boom", "x", retryable=True)
    while not run.state.ended:
        run.now = max(run.now, next_wakeup(run.state) or run.now)
        run.give(m.TimeReached(Stamp(run.now, chance.random())))
        for flight in list(run.state.in_flight.values()):
            stamp = Stamp(run.now, chance.random())
            run.give(m.StepReported(stamp, flight.path, flight.attempt, WorkerId("w"), 0, 0, None, failed))

    assert replayed(run.log, program) == (digest_of(run.log), None)


def test_a_delay_that_no_chance_can_have_made_is_a_divergence():
    program = Script((step("a", retry=Retry(3, 100, 2.0, 60_000)),))
    run = Run(program)
    run.time(6_000)
    failed = run.log[-1]
    assert isinstance(failed, happened.StepFailed)

    _, divergence = replayed([*run.log[:-1], msgspec.structs.replace(failed, retry_at_ms=6_101)], program)

    assert divergence is not None
    assert divergence.path == "a"


def test_a_value_that_was_claimed_is_compared_by_its_content():
    large = {"text": "x" * 1_000}
    program = Script((step("a"),), a=lambda run, outcome: (Finish({"was": outcome.output}),))
    run = Run(program)
    run.report("a", large)
    whole = msgspec.json.encode({"was": large})
    claim = Claim(ArtifactRef(hashlib.sha256(whole).hexdigest(), len(whole)))
    other = Claim(ArtifactRef("0" * 64, len(whole)))
    end = run.log[-1]
    assert isinstance(end, happened.ExecutionCompleted)

    assert replayed([*run.log[:-1], msgspec.structs.replace(end, output=claim)], program)[1] is None
    assert replayed([*run.log[:-1], msgspec.structs.replace(end, output=other)], program)[1] is not None


def test_a_step_that_went_straight_to_a_worker_is_decided_again_as_it_was():
    program = Script((step("a"),), a=(step("b"),), b=(step("c"), step("d")))
    run = Run(program)
    for straight in ("worker", "", "worker"):
        for flight in list(run.state.in_flight.values()):
            stamp = Stamp(run.now, straight=straight)
            run.give(m.StepReported(stamp, flight.path, flight.attempt, WorkerId("w"), 0, 0, None))
    assert any(isinstance(event, happened.StepScheduled) and event.straight for event in run.log)

    assert replayed(run.log, program) == (digest_of(run.log), None)
