import asyncio
import os
import signal

import pytest

from agentflow.cli.interrupts import until_interrupted


async def test_work_that_ends_by_itself_was_not_interrupted() -> None:
    done = asyncio.Event()

    async def work() -> None:
        done.set()

    assert await until_interrupted(work()) is False
    assert done.is_set()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
async def test_a_signal_stops_the_work_and_lets_its_clean_up_complete_also_when_it_comes_twice(
    number: signal.Signals, capsys: pytest.CaptureFixture[str]
) -> None:
    cleaned = asyncio.Event()

    async def work() -> None:
        os.kill(os.getpid(), number)
        try:
            await asyncio.Event().wait()
        finally:
            os.kill(os.getpid(), number)
            await asyncio.wait([asyncio.create_task(asyncio.Event().wait())], timeout=0.01)
            cleaned.set()

    assert await until_interrupted(work()) is True
    assert cleaned.is_set()
    assert capsys.readouterr().err.count("stopping") == 1


async def test_an_error_of_the_work_is_not_swallowed() -> None:
    async def work() -> None:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        await until_interrupted(work())
