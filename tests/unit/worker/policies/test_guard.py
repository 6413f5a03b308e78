"""Policies around a call: what a step meets when its agent is limited, unwell or crowded."""

import asyncio
import math

import pytest

from agentflow.clock import ControlledClock, SystemClock
from agentflow.contracts.step import StepFault, StepRequest
from agentflow.testing import eventually
from worker.agents.agent import StepContext
from worker.outcome import StepFailed
from worker.policies.circuit import CircuitRules
from worker.policies.guard import Guard, GuardedAgent, Policy, QuickRetry
from worker.policies.rate import RateRules


class Scripted:
    """Answers with what its script says, one call after the other; the last line repeats."""

    def __init__(self, *script) -> None:
        self._script = list(script)
        self.calls = 0
        self.at_once = self.most_at_once = 0
        self.hold = asyncio.Event()
        self.hold.set()

    async def run(self, request, context):
        self.calls += 1
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await self.hold.wait()
        finally:
            self.at_once -= 1
        said = self._script.pop(0) if len(self._script) > 1 else self._script[0]
        if isinstance(said, BaseException):
            raise said
        return said

    async def close(self) -> None:
        pass


BLIP = ConnectionError("a blip")
REFUSAL = ValueError("not this input")


def request(tool: str | None = None) -> StepRequest:
    return StepRequest("exec_1", "support", 0, "call", "call", 1, {}, 1_000, "key", tool)


def context(clock, *, within_s: float = math.inf) -> StepContext:
    return StepContext("exec_1", "call", 1, "key", 0, ends_at_s=clock.monotonic_s() + within_s, clock=clock)


def guarded(agent, policy, clock, *, chance=lambda: 0.0) -> GuardedAgent:
    return GuardedAgent(agent, Guard("crm", policy, clock=clock, chance=chance))


async def test_a_blip_is_tried_again_within_the_attempt_and_a_refusal_is_not():
    clock = SystemClock()
    policy = Policy(retry=QuickRetry(tries=3))
    blip, refusing = Scripted(BLIP, BLIP, "through"), Scripted(REFUSAL, "never")

    assert await guarded(blip, policy, clock).run(request(), context(clock)) == "through"
    with pytest.raises(ValueError, match="not this input"):
        await guarded(refusing, policy, clock).run(request(), context(clock))

    assert (blip.calls, refusing.calls) == (3, 1)


async def test_the_last_try_tells_its_own_fault_and_no_try_begins_past_the_deadline():
    clock = SystemClock()
    policy = Policy(retry=QuickRetry(tries=3, initial_s=60, max_s=60))
    agent = Scripted(BLIP)

    with pytest.raises(ConnectionError):
        await guarded(agent, policy, clock, chance=lambda: 1.0).run(request(), context(clock, within_s=5))

    assert agent.calls == 1


async def test_an_open_circuit_refuses_without_calling_and_a_probe_closes_it_again():
    clock = ControlledClock()
    agent = Scripted(BLIP, BLIP, "well again")
    crm = guarded(agent, Policy(circuit=CircuitRules(failures=2, open_s=10)), clock)
    for _ in range(2):
        with pytest.raises(ConnectionError):
            await crm.run(request(), context(clock))

    with pytest.raises(StepFailed) as refused:
        await crm.run(request(), context(clock))
    assert (refused.value.fault.code, refused.value.fault.retryable, agent.calls) == ("circuit_open", True, 2)

    await clock.advance(10)
    assert await crm.run(request(), context(clock)) == "well again"
    assert await crm.run(request(), context(clock)) == "well again"


async def test_refusals_of_the_input_do_not_open_a_circuit():
    clock = ControlledClock()
    agent = Scripted(StepFailed(StepFault("http_rejected", "no")))
    crm = guarded(agent, Policy(circuit=CircuitRules(failures=1)), clock)

    for _ in range(5):
        with pytest.raises(StepFailed, match="no"):
            await crm.run(request(), context(clock))

    assert agent.calls == 5


async def test_a_call_cut_off_by_its_deadline_counts_against_the_circuit_and_one_cut_off_by_its_caller_does_not():
    clock = SystemClock()
    agent = Scripted("never")
    agent.hold.clear()
    crm = guarded(agent, Policy(circuit=CircuitRules(failures=1)), clock)

    patient = asyncio.create_task(crm.run(request(), context(clock)))
    await eventually(lambda: agent.calls == 1)
    patient.cancel()
    await asyncio.wait([patient])
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await crm.run(request(), context(clock, within_s=0.0))
    assert agent.calls == 2, "the circuit was still closed"

    with pytest.raises(StepFailed, match="failed too often"):
        await crm.run(request(), context(clock))


async def test_the_rate_holds_calls_back_and_refuses_those_whose_deadline_it_would_pass():
    clock = ControlledClock()
    agent = Scripted("done")
    crm = guarded(agent, Policy(rate=RateRules(calls=1, per_s=1.0)), clock)

    assert await crm.run(request(), context(clock)) == "done"
    with pytest.raises(StepFailed) as refused:
        await crm.run(request(), context(clock, within_s=0.5))
    waiting = asyncio.create_task(crm.run(request(), context(clock)))
    await asyncio.sleep(0)
    assert (refused.value.fault.code, agent.calls) == ("rate_limited", 1)

    await clock.advance(1)
    assert await waiting == "done"


async def test_a_bulkhead_keeps_one_tool_from_taking_all_the_room_and_leaves_others_alone():
    clock = SystemClock()
    agent = Scripted("done")
    agent.hold.clear()
    tools = GuardedAgent(agent, None, tools={"slow": Guard("slow", Policy(bulkhead=2), clock=clock)})

    slow = [asyncio.create_task(tools.run(request("slow"), context(clock))) for _ in range(6)]
    await eventually(lambda: agent.at_once == 2)
    other = asyncio.create_task(tools.run(request("quick"), context(clock)))
    await eventually(lambda: agent.at_once == 3)
    agent.hold.set()
    await asyncio.gather(*slow, other)

    assert (agent.calls, agent.most_at_once) == (7, 3)
