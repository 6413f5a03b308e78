"""Results handed to the control plane that asked for them: together, or through the stream where it takes them not."""

import asyncio

from agentflow import limits
from agentflow.clock import SystemClock
from agentflow.contracts.bundle import ResultsHanded, ResultsTaken, bundled, opened
from agentflow.ports import BusUnavailable
from worker.reporter import Reporter

SUBJECT = "workflows.support.in.3.acme"
OWNER = "control.results.srv_1.acme"


class Owner:
    """The control plane's side of a bus: what it was asked, and whom it takes."""

    def __init__(self, bus, refuses=(), answers=None, gives=()) -> None:
        self.asked = []
        self.room = []
        self._gives = gives
        self._refuses = refuses
        self._answers = answers
        bus.request = self._request

    async def _request(self, subject, payload, *, within_s):
        question = opened(payload, ResultsHanded)
        ids = [each.id for each in question.results]
        self.asked.append((subject, ids))
        self.room.append(question.room)
        if self._answers is not None:
            return self._answers
        refused = [place for place, each in enumerate(ids) if each in self._refuses]
        return bundled(ResultsTaken(refused, list(self._gives)))


class Slots:
    """A mailbox's side: how many slots it keeps free, and what it is given for them."""

    name = "classifier"

    def __init__(self, free: int) -> None:
        self.free = free
        self.steps = []

    def offer(self, most: int) -> int:
        offered = min(most, self.free)
        self.free -= offered
        return offered

    def given(self, steps, *, offered: int) -> None:
        self.free += offered
        self.steps += [each.id for each in steps]


async def sent(bus, *messages, owner=OWNER, desk=None):
    reporter = Reporter(bus=bus, clock=SystemClock(), spool=None)
    await asyncio.gather(*(reporter.send(SUBJECT, each, each.id, owner=owner, desk=desk) for each in messages))
    await reporter.close()
    assert reporter.unsent == 0


async def test_results_that_end_in_one_moment_go_to_their_owner_in_one_message(bus, asked):
    owner = Owner(bus)
    results = [asked(path=f"step-{number}") for number in range(5)]

    await sent(bus, *results)

    assert owner.asked == [(OWNER, [each.id for each in results])]
    assert bus.published == []


async def test_what_the_owner_does_not_take_goes_through_the_stream(bus, asked):
    taken, refused = asked(path="taken"), asked(path="refused")
    Owner(bus, refuses={refused.id})

    await sent(bus, taken, refused)

    assert [(subject, dedup) for subject, _, dedup in bus.published] == [(SUBJECT, refused.id)]


async def test_without_an_answer_everything_goes_through_the_stream(bus, asked):
    async def request(subject, payload, *, within_s):
        raise BusUnavailable("nobody answers")

    bus.request = request
    results = [asked(), asked(path="other")]

    await sent(bus, *results)

    assert [dedup for _, _, dedup in bus.published] == [each.id for each in results]


async def test_an_answer_that_cannot_be_read_is_none(bus, asked):
    Owner(bus, answers=b"fine!")
    result = asked()

    await sent(bus, result)

    assert [dedup for _, _, dedup in bus.published] == [result.id]


async def test_many_large_results_go_in_several_messages_that_the_bus_can_take(bus, asked):
    owner = Owner(bus)
    results = [asked(path=f"step-{number}", input={"text": "x" * 100_000}) for number in range(5)]

    await sent(bus, *results)

    assert [len(ids) for _, ids in owner.asked] == [2, 2, 1]
    assert limits.DIRECT_RESULTS_BYTES + limits.PAYLOAD_BYTES_MAX < limits.BUS_MESSAGE_BYTES_MAX


async def test_steps_come_back_for_the_room_that_was_offered(bus, asked):
    following = asked(path="next")
    owner = Owner(bus, gives=[following])
    slots = Slots(free=2)

    await sent(bus, *(asked(path=f"step-{number}") for number in range(3)), desk=slots)

    assert owner.room == [{"classifier": 2}]
    assert slots.steps == [following.id]
    assert slots.free == 2


async def test_without_an_answer_the_room_that_was_offered_is_free_again(bus, asked):
    async def request(subject, payload, *, within_s):
        raise BusUnavailable("nobody answers")

    bus.request = request
    slots = Slots(free=1)

    await sent(bus, asked(), desk=slots)

    assert slots.free == 1
    assert slots.steps == []


async def test_an_answer_whose_seal_is_broken_is_none(bus, asked):
    honest = bundled(ResultsTaken([], [asked(path="next")]))
    Owner(bus, answers=honest.replace(b'"classifier"', b'"klassifier"'))
    slots, result = Slots(free=2), asked()

    await sent(bus, result, desk=slots)

    assert slots.steps == []
    assert [dedup for _, _, dedup in bus.published] == [result.id]
