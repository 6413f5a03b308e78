import asyncio
from contextlib import asynccontextmanager

import msgspec
import pytest

from agentflow import limits
from agentflow.bus.subjects import UnusableName
from agentflow.clock import ControlledClock, SystemClock
from agentflow.contracts.step import CancelSteps, StepFault
from agentflow.testing import eventually
from worker.mailbox import Mailbox
from worker.outcome import StepFailed
from worker.reporter import Reporter


class Gate:
    """An agent whose steps stand still until they are let through."""

    def __init__(self) -> None:
        self.begun: list[tuple[str, int]] = []
        self.contexts = []
        self.closed = False
        self._open = asyncio.Event()

    async def run(self, request, context):
        self.begun.append((request.path, request.attempt))
        self.contexts.append(context)
        await self._open.wait()
        return {"path": request.path}

    async def close(self) -> None:
        self.closed = True

    def open(self) -> None:
        self._open.set()


class Does:
    """An agent that does what it is given."""

    def __init__(self, deed) -> None:
        self._deed = deed

    async def run(self, request, context):
        return await self._deed()

    async def close(self) -> None:
        pass


@pytest.fixture
def open_mailbox(bus, ids):
    @asynccontextmanager
    async def opened(agent, *, concurrency=4, ack_wait_s=30.0, clock=None):
        mailbox = Mailbox(
            "classifier",
            agent,
            pool="default",
            concurrency=concurrency,
            ack_wait_s=ack_wait_s,
            bus=bus,
            reporter=Reporter(bus=bus, clock=clock or SystemClock(), spool=None),
            worker="wrk_1",
            ids=ids,
            clock=clock or SystemClock(),
        )
        await mailbox.start()
        try:
            yield mailbox
        finally:
            await mailbox.close()

    return opened


async def test_the_result_is_stored_before_the_step_is_acked(bus, asked, open_mailbox):
    gate = Gate()
    async with open_mailbox(gate) as mailbox:
        bus.deliver(asked())
        gate.open()
        await mailbox.wait_idle()

        assert bus.story == ["publish", "ack"]
        subject, _, dedup = bus.published[0]
        assert (subject, dedup) == ("workflows.support.in.3.default", "exec_1/classify#1/result")
        assert bus.results[0].output == {"path": "classify"}
        assert bus.consumer.subjects == ("agents.default.classifier.in",)


async def test_a_doubled_delivery_of_a_running_step_is_not_done_twice_and_both_are_acked(bus, asked, open_mailbox):
    gate = Gate()
    async with open_mailbox(gate) as mailbox:
        first, second = bus.deliver(asked()), bus.deliver(asked())
        other_attempt = bus.deliver(asked(attempt=2))
        gate.open()
        await mailbox.wait_idle()

        assert sorted(gate.begun) == [("classify", 1), ("classify", 2)]
        assert first.verdicts == second.verdicts == other_attempt.verdicts == ["ack"]
        assert len(bus.published) == 2


async def test_no_more_steps_run_at_once_than_the_agent_allows_and_the_rest_follow_in_order(bus, asked, open_mailbox):
    gate = Gate()
    async with open_mailbox(gate, concurrency=2) as mailbox:
        for number in range(5):
            bus.deliver(asked(path=f"step{number}"))
        await eventually(lambda: len(gate.begun) == 2)
        assert mailbox.running == 2

        gate.open()
        await mailbox.wait_idle()

        assert [path for path, _ in gate.begun] == [f"step{number}" for number in range(5)]
        assert mailbox.running == 0


async def test_a_held_step_gives_a_sign_of_work_three_times_per_ack_wait_and_none_afterwards(bus, asked, open_mailbox):
    clock = ControlledClock()
    gate = Gate()
    async with open_mailbox(gate, concurrency=1, ack_wait_s=30, clock=clock) as mailbox:
        await asyncio.sleep(0)
        running, waiting = bus.deliver(asked(path="a")), bus.deliver(asked(path="b"))
        for _ in range(3):
            await clock.advance(10)

        assert (running.signs, waiting.signs) == (3, 3)

        gate.open()
        await mailbox.wait_idle()
        await clock.advance(30)
        assert running.signs == 3


async def test_a_step_that_overruns_its_timeout_is_cancelled_and_reported_as_retryable(bus, asked, open_mailbox):
    gate = Gate()
    async with open_mailbox(gate) as mailbox:
        bus.deliver(asked(timeout_ms=20))
        await mailbox.wait_idle()

        late = "The agent did not answer within 20 ms."
        assert bus.results[0].fault == StepFault("timeout", late, retryable=True)


async def test_an_agents_own_timeout_error_is_its_own_words(bus, asked, open_mailbox):
    async def upstream():
        raise TimeoutError("the CRM was slow")

    async with open_mailbox(Does(upstream)) as mailbox:
        bus.deliver(asked())
        await mailbox.wait_idle()

        assert bus.results[0].fault == StepFault("timeout", "TimeoutError: the CRM was slow", retryable=True)


async def raises_value_error():
    raise ValueError("bad")


async def raises_system_exit():
    raise SystemExit(1)


async def cancels_itself():
    raise asyncio.CancelledError


async def fails_exactly():
    raise StepFailed(StepFault("http_rejected", "HTTP 404"))


@pytest.mark.parametrize(
    ("deed", "code"),
    [
        (raises_value_error, "agent_error"),
        (raises_system_exit, "agent_error"),
        (cancels_itself, "agent_error"),
        (fails_exactly, "http_rejected"),
    ],
)
async def test_whatever_an_agent_raises_is_reported_and_the_mailbox_goes_on(bus, asked, open_mailbox, deed, code):
    async with open_mailbox(Does(deed)) as mailbox:
        for path in ("a", "b"):
            bus.deliver(asked(path=path))
            await mailbox.wait_idle()

        assert [result.fault.code for result in bus.results] == [code, code]
        assert bus.story == ["publish", "ack"] * 2


async def test_a_result_outlives_an_outage_of_the_bus_and_the_step_is_not_done_again(bus, asked, open_mailbox):
    clock = ControlledClock()
    gate = Gate()
    async with open_mailbox(gate, clock=clock) as mailbox:
        bus.away = 3
        delivery = bus.deliver(asked())
        gate.open()
        await eventually(lambda: bus.away == 2)
        assert delivery.verdicts == []

        for _ in range(3):
            await clock.advance(5)
        await mailbox.wait_idle()

        assert gate.begun == [("classify", 1)]
        assert bus.story == ["publish", "ack"]


async def test_a_result_that_no_bus_would_take_does_not_block_the_mailbox_for_ever(bus, asked, open_mailbox):
    gate = Gate()
    async with open_mailbox(gate) as mailbox:
        bus.refusal = UnusableName("workflow", "a b", "letters")
        delivery = bus.deliver(asked())
        gate.open()
        await mailbox.wait_idle()

        assert delivery.verdicts == ["ack"]


async def test_a_request_that_cannot_be_read_is_taken_off_the_stream(bus, asked, open_mailbox):
    gate = Gate()
    async with open_mailbox(gate) as mailbox:
        message = asked()
        delivery = bus.deliver(msgspec.structs.replace(message, payload=msgspec.Raw(b'{"v":99}')))

        assert delivery.verdicts == ["ack"]
        assert mailbox.running == 0


async def test_stopping_reports_what_waits_and_closing_what_does_not_end_as_stopped_so_another_worker_may_take_it(
    bus, asked, open_mailbox
):
    gate = Gate()
    async with open_mailbox(gate, concurrency=1) as mailbox:
        running, waiting = bus.deliver(asked(path="a")), bus.deliver(asked(path="b"))
        await eventually(lambda: gate.begun == [("a", 1)])

        await mailbox.stop_taking()

        assert bus.story == ["stop", "publish", "ack"]
        assert (running.verdicts, waiting.verdicts) == ([], ["ack"])

    assert running.verdicts == ["ack"]
    assert [(result.path, result.fault.code) for result in bus.results] == [
        ("b", "worker_stopped"),
        ("a", "worker_stopped"),
    ]
    assert gate.closed


async def test_closing_without_a_drain_reports_everything_and_begins_nothing_more(bus, asked, open_mailbox):
    gate = Gate()
    async with open_mailbox(gate, concurrency=2):
        begun = bus.deliver(asked(path="a"))
        await eventually(lambda: gate.begun == [("a", 1)])
        not_begun, waiting = bus.deliver(asked(path="b")), bus.deliver(asked(path="c"))

    assert gate.begun == [("a", 1)]
    assert begun.verdicts == not_begun.verdicts == waiting.verdicts == ["ack"]
    assert sorted(result.path for result in bus.results) == ["a", "b", "c"]
    assert {result.fault.code for result in bus.results} == {"worker_stopped"}


async def test_a_step_that_comes_again_is_reported_lost_and_not_run(bus, asked, open_mailbox):
    gate = Gate()
    async with open_mailbox(gate) as mailbox:
        delivery = bus.deliver(asked(), deliveries=2)
        await eventually(lambda: delivery.verdicts == ["ack"])

        assert gate.begun == []
        assert mailbox.held == []
        (result,) = bus.results
        assert (result.fault.code, result.fault.retryable, result.attempt) == ("worker_lost", True, 1)
        assert bus.published[0][2] == "exec_1/classify#1/result", (
            "so the stream takes this or the late result, not both"
        )


async def test_a_step_that_comes_again_after_it_was_finished_here_is_answered_again_and_not_run(
    bus, asked, open_mailbox
):
    gate = Gate()
    gate.open()
    async with open_mailbox(gate) as mailbox:
        bus.deliver(asked())
        await mailbox.wait_idle()
        again = bus.deliver(asked(), deliveries=2)
        await eventually(lambda: again.verdicts == ["ack"])

    assert gate.begun == [("classify", 1)]
    first, second = bus.published
    assert first == second, "the stream drops the second one, unless it has lost the first"


async def test_a_result_too_old_to_be_at_hand_is_reported_as_lost_when_it_is_asked_for(
    bus, asked, open_mailbox, monkeypatch
):
    monkeypatch.setattr("worker.reporter._KEPT_MAX", 0)
    gate = Gate()
    gate.open()
    async with open_mailbox(gate) as mailbox:
        bus.deliver(asked())
        await mailbox.wait_idle()
        again = bus.deliver(asked())
        await eventually(lambda: again.verdicts == ["ack"])

    assert gate.begun == [("classify", 1)]
    assert [None if result.fault is None else result.fault.code for result in bus.results] == [None, "worker_lost"]


async def test_a_cancelled_step_ends_is_reported_cancelled_and_acked(bus, asked, open_mailbox):
    gate = Gate()
    async with open_mailbox(gate) as mailbox:
        meant, other = bus.deliver(asked(path="a")), bus.deliver(asked(path="b"))
        await eventually(lambda: len(gate.begun) == 2)

        assert mailbox.cancel(CancelSteps("exec_1", "a", 1, reason="the run was cancelled")) == 1
        await eventually(lambda: meant.verdicts == ["ack"])

        assert other.verdicts == []
        (result,) = bus.results
        assert (result.path, result.fault.code, result.fault.retryable) == ("a", "cancelled", False)
        assert gate.contexts[0].cancelled
        assert not gate.contexts[1].cancelled
        assert mailbox.running == 1


async def test_a_cancellation_reaches_steps_that_have_not_begun_and_those_still_on_their_way(bus, asked, open_mailbox):
    gate = Gate()
    async with open_mailbox(gate) as mailbox:
        bus.deliver(asked(path="a"))  # its task has not had its first turn
        mailbox.cancel(CancelSteps("exec_1"))
        bus.deliver(asked(path="b"))
        bus.deliver(asked(path="a", execution_id="exec_2"))
        await eventually(lambda: len(bus.results) == 2)

        assert {result.fault.code for result in bus.results} == {"cancelled"}
        assert gate.begun == [("a", 1)], "only the other execution's"
        assert mailbox.running == 1


async def test_a_late_cancellation_does_not_reach_the_attempt_that_follows(bus, asked, open_mailbox):
    gate = Gate()
    async with open_mailbox(gate) as mailbox:
        bus.deliver(asked(attempt=2))
        await eventually(lambda: gate.begun)

        assert mailbox.cancel(CancelSteps("exec_1", "classify", 1)) == 0


async def test_a_fault_of_ours_gives_the_step_back_instead_of_losing_it(bus, asked, open_mailbox):
    gate = Gate()
    gate.open()
    async with open_mailbox(gate) as mailbox:
        bus.refusal = ZeroDivisionError("not an outage, a bug")
        delivery = bus.deliver(asked())
        await mailbox.wait_idle()

        assert delivery.verdicts == ["nak"]


async def test_an_agent_learns_its_step_its_effect_key_and_its_deadline(bus, asked, open_mailbox):
    clock = ControlledClock(start_ms=1_000)
    gate = Gate()
    gate.open()
    async with open_mailbox(gate, clock=clock) as mailbox:
        bus.deliver(asked(attempt=4, timeout_ms=500))
        await mailbox.wait_idle()

    (context,) = gate.contexts
    assert (context.execution_id, context.step, context.attempt) == ("exec_1", "classify", 4)
    assert (context.effect_key, context.deadline_ms) == ("default/exec_1/classify", 1_500)


async def test_it_offers_only_slots_that_nothing_in_the_mailbox_could_want(bus, asked, open_mailbox):
    gate = Gate()
    async with open_mailbox(gate, concurrency=3) as mailbox:
        bus.deliver(asked(path="a"))
        assert mailbox.offer(5) == 2
        assert mailbox.offer(5) == 0, "what is offered is kept free"

        mailbox.given([asked(path="b")], offered=2)
        assert mailbox.offer(5) == 1
        mailbox.given([], offered=1)
        for path in "cd":
            bus.deliver(asked(path=path))
        assert mailbox.offer(5) == 0
        gate.open()
        await mailbox.wait_idle()

        assert sorted(path for path, _ in gate.begun) == ["a", "b", "c", "d"]


async def test_a_step_that_came_with_an_answer_is_done_like_any_other(bus, asked, open_mailbox):
    gate = Gate()
    async with open_mailbox(gate) as mailbox:
        mailbox.given([asked(path="next")], offered=mailbox.offer(1))
        again = bus.deliver(asked(path="next"))  # sent once more, because nobody knew that it had come
        gate.open()
        await mailbox.wait_idle()

        assert gate.begun == [("next", 1)]
        assert again.verdicts == ["ack"]
        assert [result.path for result in bus.results] == ["next"]


async def test_one_step_in_so_many_goes_by_the_mailbox_so_that_other_workers_get_their_share(open_mailbox):
    async with open_mailbox(Gate(), concurrency=100) as mailbox:
        offered = []
        for _ in range(2 * limits.STEPS_BACK_RUN):
            offered.append(mailbox.offer(1))
            mailbox.given([], offered=offered[-1])

        assert offered.count(0) == 2


async def test_a_worker_that_leaves_offers_nothing_and_gives_back_what_still_comes(bus, asked, open_mailbox):
    gate = Gate()
    async with open_mailbox(gate) as mailbox:
        offered = mailbox.offer(1)
        await mailbox.stop_taking()

        assert mailbox.offer(1) == 0
        mailbox.given([asked(path="late")], offered=offered)
        await eventually(lambda: bus.results)

        assert gate.begun == []
        assert bus.results[0].fault.code == "worker_stopped"
