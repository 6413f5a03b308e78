"""Whose connection has ended, as the bus tells it."""

import asyncio

import pytest

from agentflow.ports import BusUnavailable, NobodyListens
from control_plane.worker_lines import WorkerLines

ADA, BOB = ("default", "wrk_ada"), ("acme", "wrk_bob")


class OneLine:
    """A bus that knows who is connected, and who of them would answer."""

    def __init__(self) -> None:
        self.line = 0
        self.connected = {"workers.line.wrk_ada.default", "workers.line.wrk_bob.acme"}
        self.stopped: set[str] = set()
        self.asked: list[str] = []

    async def request(self, subject: str, payload: bytes, *, within_s: float) -> bytes:
        self.asked.append(subject)
        await asyncio.sleep(0)
        if subject not in self.connected:
            raise NobodyListens("nobody")
        if subject in self.stopped:
            raise BusUnavailable("no answer in time")
        return b""

    def cut(self) -> None:
        self.line += 1


@pytest.fixture
def bus():
    return OneLine()


@pytest.fixture
def lines(bus):
    return WorkerLines(bus)


async def test_a_worker_that_was_there_and_is_not_has_lost_its_connection(bus, lines):
    assert await lines.ended([ADA, BOB], []) == set()
    bus.connected.remove("workers.line.wrk_bob.acme")

    assert await lines.ended([ADA, BOB], [ADA, BOB]) == {BOB}


async def test_a_worker_that_answers_nothing_is_still_connected(bus, lines):
    await lines.ended([ADA], [])
    bus.stopped.add("workers.line.wrk_ada.default")

    assert await lines.ended([ADA], [ADA]) == set()


async def test_a_worker_that_was_never_reached_is_not_asked_again_and_not_called_gone(bus, lines):
    """Of an older release, or with a credential that does not open its line."""
    bus.connected.clear()

    for _ in range(3):
        assert await lines.ended([ADA], [ADA]) == set()
    assert len(bus.asked) == 1


async def test_a_worker_that_is_in_time_is_asked_once(bus, lines):
    for _ in range(3):
        await lines.ended([ADA], [])

    assert len(bus.asked) == 1


async def test_after_a_cut_of_our_own_nobody_is_gone_until_reached_again(bus, lines):
    """As a restart of the bus has it: everybody was cut, and we may be back before them."""
    assert not lines.is_new()
    await lines.ended([ADA, BOB], [])
    bus.connected.clear()
    bus.cut()
    assert lines.is_new()
    assert not lines.is_new()
    assert await lines.ended([ADA, BOB], [ADA, BOB]) == set()

    bus.connected.add("workers.line.wrk_ada.default")
    bus.cut()
    assert lines.is_new()
    await lines.ended([ADA, BOB], [])
    bus.connected.clear()
    assert await lines.ended([ADA, BOB], [ADA, BOB]) == {ADA}


async def test_an_answer_from_before_a_cut_says_nothing(bus, lines):
    await lines.ended([ADA], [])
    bus.connected.clear()

    asking = asyncio.create_task(lines.ended([ADA], [ADA]))
    await asyncio.sleep(0)
    bus.cut()

    assert await asking == set()
