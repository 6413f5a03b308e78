"""Results on their way: confirmed, late, kept on disk, and sent by the process that comes after."""

import asyncio

import pytest

from agentflow.clock import SystemClock
from agentflow.testing import eventually
from worker.reporter import Reporter
from worker.spool import open_spool

SUBJECT = "workflows.support.in.3"


@pytest.fixture
def open_reporter(bus, tmp_path):
    def opened() -> Reporter:
        reporter = Reporter(bus=bus, clock=SystemClock(), spool=open_spool(tmp_path, bytes_max=1024 * 1024))
        reporter.start()
        return reporter

    return opened


def on_disk(tmp_path) -> int:
    return (tmp_path / "results-0.log").stat().st_size


async def test_a_result_that_is_confirmed_in_time_never_touches_the_disk(bus, asked, open_reporter, tmp_path):
    reporter = open_reporter()
    await reporter.send(SUBJECT, asked(), "one")

    assert [dedup for _, _, dedup in bus.published] == ["one"]
    assert reporter.has("one")
    assert on_disk(tmp_path) == 0
    await reporter.close()


async def test_a_result_the_stream_is_late_with_is_on_disk_until_it_is_confirmed(bus, asked, open_reporter, tmp_path):
    reporter = open_reporter()
    bus.away = 10**9
    sending = asyncio.create_task(reporter.send(SUBJECT, asked(), "one"))
    await eventually(lambda: on_disk(tmp_path) > 0)

    bus.away = 0
    await sending

    assert on_disk(tmp_path) == 0
    await reporter.close()


async def test_the_next_process_sends_what_the_last_one_could_not(bus, asked, open_reporter, tmp_path):
    bus.away = 10**9
    first = open_reporter()
    sending = asyncio.create_task(first.send(SUBJECT, asked(), "one"))
    await asyncio.sleep(0)
    await first.close()  # as a stopping worker does: nothing finished is forgotten
    sending.cancel()
    assert on_disk(tmp_path) > 0

    bus.away = 3
    second = open_reporter()
    assert second.has("one"), "from the first moment, so that a step that comes again is not run"
    await eventually(lambda: not second.unsent)

    assert [(subject, dedup) for subject, _, dedup in bus.published] == [(SUBJECT, "one")]
    assert on_disk(tmp_path) == 0
    await second.close()


async def test_spooling_first_has_the_result_on_disk_before_the_bus_is_asked(bus, asked, open_reporter, tmp_path):
    sizes = []
    publish = bus.publish

    async def looking(*arguments, **named):
        sizes.append(on_disk(tmp_path))
        await publish(*arguments, **named)

    bus.publish = looking
    reporter = open_reporter()
    await reporter.send(SUBJECT, asked(), "one", spool_first=True)

    assert sizes[0] > 0
    assert on_disk(tmp_path) == 0
    await reporter.close()
