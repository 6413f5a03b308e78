"""What is asked of executions while they run: signals, pauses, and what comes too late."""

from collections import Counter
from contextlib import suppress

import pytest

from agentflow import limits
from agentflow.execution import messages
from agentflow.execution.events import SignalReceived
from agentflow.execution.state import Status
from agentflow.ids import TenantId
from control_plane.orchestrator.orchestrator import ExecutionEnded, ExecutionNotFound, NotFailed, TooManySignals
from tests.integration import orchestrator_desk
from tests.integration.orchestrator_desk import PATIENT

desk = orchestrator_desk.desk


async def test_a_signal_is_taken_once_however_often_it_is_sent(desk):
    async with desk() as here:
        execution = await here.start(workflow=PATIENT)
        for _ in range(3):
            with suppress(ExecutionEnded):
                await here.asked(execution, lambda stamp: messages.Signal(stamp, "s1", "go", {"n": 7}))

        assert (await here.ended(execution)).output == {"n": 7}
        assert Counter(await here.story(execution))[SignalReceived] == 1


async def test_a_signal_that_can_no_longer_be_kept_is_refused_and_leaves_no_trace(desk, monkeypatch):
    monkeypatch.setattr(limits, "SIGNALS_KEPT_MAX", 2)
    async with desk() as here:
        execution = await here.start(workflow=PATIENT)
        for number in range(2):
            await here.asked(execution, lambda stamp, n=number: messages.Signal(stamp, f"e{n}", "early", n))

        with pytest.raises(TooManySignals):
            await here.asked(execution, lambda stamp: messages.Signal(stamp, "e2", "early", 2))
        await here.asked(execution, lambda stamp: messages.Signal(stamp, "e1", "early", 1))  # sent again: taken before
        await here.asked(execution, lambda stamp: messages.Signal(stamp, "s1", "go", {"n": 7}))

        assert (await here.ended(execution)).output == {"n": 7}
        assert Counter(await here.story(execution))[SignalReceived] == 3


async def test_a_paused_execution_goes_on_where_it_was(desk):
    async with desk() as here:
        execution = await here.start(workflow=PATIENT)
        paused = await here.asked(execution, lambda stamp: messages.Pause(stamp, "p1"))
        held = await here.asked(execution, lambda stamp: messages.Signal(stamp, "s1", "go", 1))

        assert (paused.status, held.status, len(held.in_flight)) == (Status.PAUSED, Status.PAUSED, 0)
        await here.asked(execution, lambda stamp: messages.Resume(stamp, "r1"))
        assert (await here.ended(execution)).output == 1


async def test_what_is_asked_of_an_execution_in_the_wrong_state_is_refused(desk):
    async with desk() as here:
        execution = await here.start()
        await here.ended(execution)

        with pytest.raises(ExecutionEnded):
            await here.asked(execution, lambda stamp: messages.Pause(stamp, "p1"))
        with pytest.raises(NotFailed):
            await here.asked(execution, lambda stamp: messages.RetryFailed(stamp, "r1"))
        with pytest.raises(ExecutionNotFound):
            await here.orchestrator.request(TenantId("other"), execution, lambda stamp: messages.Resume(stamp, "r1"))
