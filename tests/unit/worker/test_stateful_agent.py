"""Agents that remember, without servers: the control plane's rules answer directly, the store is a list."""

import asyncio

import pytest

from agentflow.clock import ControlledClock, SystemClock
from agentflow.contracts.agent_state import StateRef
from agentflow.contracts.step import ReleaseState, StepRequest
from agentflow.ports import BusUnavailable
from agentflow.testing import eventually
from control_plane.registry.agent_states import AgentStates
from worker.agents.agent import StepContext
from worker.agents.function import FunctionAgent
from worker.agents.hooks import HookedAgent
from worker.outcome import StepFailed
from worker.states.desk import StateDesk
from worker.states.memory import Memory, StateNotJson, StateUnreadable, pack, unpack
from worker.states.stateful import StatefulAgent, StateRules


class Shelf:
    """Every version ever written, and the one rule."""

    def __init__(self) -> None:
        self.versions = {}

    async def latest(self, ref):
        return self.versions[ref][-1] if ref in self.versions else None

    async def append(self, ref, state):
        kept = self.versions.setdefault(ref, [])
        if state.version != len(kept) + 1:
            return False
        kept.append(state)
        return True


class World:
    """A control plane's answers for any number of workers; `lost` are those it counts as gone."""

    def __init__(self) -> None:
        self.shelf = Shelf()
        self.lost: set[str] = set()
        self.agents: list[StatefulAgent] = []
        self.deaf = 0
        self.mute = 0
        self.states = AgentStates(
            self.shelf, clock=SystemClock(), is_lost=lambda _, worker: worker in self.lost, ask_release=self._release
        )

    async def _release(self, pool, ref):
        for agent in self.agents:
            agent.release(ReleaseState(ref.tenant, ref.agent, ref.instance))

    async def request(self, subject, payload, *, within_s):
        if self.deaf:
            self.deaf -= 1
            raise BusUnavailable("away for a test")
        answer = await self.states.answer(subject.rpartition(".")[2], payload)
        if self.mute:
            self.mute -= 1
            raise BusUnavailable("the answer got lost")
        return answer

    def agent(self, worker, thing, *, clock=None, **rules):
        clock = clock or SystemClock()
        desk = StateDesk(clock=clock, worker=worker, pool="default")
        desk.connect(self)

        def make(life):
            if isinstance(thing, type):
                return HookedAgent(thing, life, concurrency=1)
            return FunctionAgent("clerk", thing, concurrency=1)

        rules = StateRules(**({"key": "customer"} | rules))
        agent = StatefulAgent("clerk", make, rules, desk=desk, clock=clock)
        self.agents.append(agent)
        return agent

    def kept(self, instance="ada"):
        return unpack(self.shelf.versions[StateRef("default", "clerk", instance)][-1].data).state

    def types(self, instance="ada"):
        return [each.checkpoint_type for each in self.shelf.versions[StateRef("default", "clerk", instance)]]


@pytest.fixture
def world():
    return World()


def ask(agent, n=1, *, customer="ada", within_s=5.0, fail=False):
    request = StepRequest("exec_1", "w", 0, "s", "s", 1, {"customer": customer, "fail": fail}, 1_000, f"key{n}")
    clock = SystemClock()
    ends = clock.monotonic_s() + within_s
    return agent.run(request, StepContext("exec_1", "s", 1, f"key{n}", 0, ends_at_s=ends, clock=clock))


async def count(input, context):
    context.state["seen"] = context.state.get("seen", 0) + 1
    if input["fail"]:
        raise ValueError("after changing the state")
    return context.state["seen"]


async def test_what_a_step_put_into_the_state_is_saved_before_it_is_answered_and_each_key_has_its_own(world):
    agent = world.agent("wrk_1", count)

    assert [await ask(agent, 1), await ask(agent, 2), await ask(agent, 3, customer="bob")] == [1, 2, 1]

    assert (world.kept("ada"), world.kept("bob")) == ({"seen": 2}, {"seen": 1})
    assert world.types("ada") == ["claim", "step", "step"]


async def test_a_failed_step_leaves_the_state_as_it_was(world):
    agent = world.agent("wrk_1", count)
    await ask(agent, 1)
    with pytest.raises(ValueError, match="after changing"):
        await ask(agent, 2, fail=True)

    assert world.kept() == {"seen": 1}
    assert await ask(agent, 3) == 2


async def test_a_step_that_is_repeated_because_its_result_was_lost_is_not_applied_twice(world):
    assert await ask(world.agent("wrk_1", count), 1) == 1
    world.lost.add("wrk_1")  # killed after it had saved, before it had answered

    assert await ask(world.agent("wrk_2", count), 1) == 1
    assert world.kept() == {"seen": 1}


async def test_a_living_worker_lets_a_state_go_when_another_needs_it(world):
    first, second = world.agent("wrk_1", count), world.agent("wrk_2", count)
    await ask(first, 1)

    assert await ask(second, 2) == 2

    assert (first.awake, second.awake) == (0, 1)
    assert world.types() == ["claim", "step", "migrate", "claim", "step"]
    assert await ask(first, 3) == 3, "and back"


async def test_a_stale_worker_cannot_overwrite_what_another_has_saved_since(world):
    stale, next_one = world.agent("wrk_stale", count), world.agent("wrk_next", count)
    await ask(stale, 1)
    world.lost.add("wrk_stale")  # paused for so long that it counts as gone
    await ask(next_one, 2)

    with pytest.raises(StepFailed) as refused:
        await ask(stale, 3)

    assert (refused.value.fault.code, refused.value.fault.retryable) == ("state_fenced", True)
    assert world.kept() == {"seen": 2}
    world.lost.clear()
    assert await ask(stale, 3) == 3, "it learns what it missed with its next step"


async def test_a_lost_question_and_a_lost_answer_cost_a_moment_and_save_nothing_twice(world):
    agent = world.agent("wrk_1", count)
    world.deaf = 2
    await ask(agent, 1)
    world.mute = 2
    await ask(agent, 2)

    assert world.kept() == {"seen": 2}
    assert world.types() == ["claim", "step", "step"]


async def test_a_control_plane_that_stays_away_fails_the_step_as_retryable_and_changes_nothing(world):
    agent = world.agent("wrk_1", count)
    await ask(agent, 1)
    world.deaf = 10**9

    with pytest.raises(StepFailed) as refused:
        await ask(agent, 2, within_s=0.1)

    assert (refused.value.fault.code, refused.value.fault.retryable) == ("state_unavailable", True)
    world.deaf = 0
    assert await ask(agent, 3) == 2


async def test_an_idle_state_hibernates_and_wakes_with_the_next_message(world):
    told = []

    class Clerk:
        def on_start(self, agent):
            told.append(("start", dict(agent.state)))
            agent.state.setdefault("seen", 0)

        async def on_message(self, input, context):
            context.state["seen"] += 1
            return input["customer"]

        async def on_plan(self, customer, context):
            return {"customer": customer, "seen": context.state["seen"]}

        def on_finish(self, agent):
            agent.state["slept"] = True
            told.append(("finish", dict(agent.state)))

    clock = ControlledClock()
    agent = world.agent("wrk_1", Clerk, clock=clock, hibernate_after_s=60)
    await agent.start()
    await asyncio.sleep(0)
    assert await ask(agent, 1) == {"customer": "ada", "seen": 1}

    for _ in range(300):
        await clock.advance(0.25)
    await eventually(lambda: agent.awake == 0)
    assert world.types()[-1] == "hibernate"
    assert await ask(agent, 2) == {"customer": "ada", "seen": 2}

    assert told == [
        ("start", {}),
        ("finish", {"seen": 1, "slept": True}),
        ("start", {"seen": 1, "slept": True}),
    ]
    await agent.close()
    assert world.shelf.versions[StateRef("default", "clerk", "ada")][-1].worker is None


async def test_periodic_saves_come_with_time_and_manual_ones_when_asked_whatever_becomes_of_the_step(world):
    clock = ControlledClock()
    periodic = world.agent("wrk_1", count, clock=clock, checkpoint="periodic", every_s=30)
    await periodic.start()
    await asyncio.sleep(0)
    await ask(periodic, 1)
    assert world.types() == ["claim"]
    for _ in range(130):
        await clock.advance(0.25)
    await eventually(lambda: world.types() == ["claim", "periodic"])
    await periodic.close()

    async def note(input, context):
        context.state["noted"] = True
        await context.checkpoint()
        context.state["unsure"] = True
        raise ValueError("after the note")

    manual = world.agent("wrk_1", note, checkpoint="manual")
    with pytest.raises(ValueError, match="after the note"):
        await ask(manual, 1, customer="bob")
    await manual.close()
    assert world.kept("bob") == {"noted": True}


async def test_steps_of_one_state_come_one_after_the_other_and_those_of_others_beside_them(world):
    at_once = {"ada": 0, "all": 0}
    most = {"ada": 0, "all": 0}

    async def slow(input, context):
        for name in {"all", input["customer"]} & set(at_once):
            at_once[name] += 1
            most[name] = max(most[name], at_once[name])
        for _ in range(20):
            await asyncio.sleep(0)
        for name in {"all", input["customer"]} & set(at_once):
            at_once[name] -= 1

    agent = world.agent("wrk_1", slow)
    await asyncio.gather(*(ask(agent, n) for n in range(4)), *(ask(agent, n, customer=f"c{n}") for n in range(4)))

    assert most["ada"] == 1
    assert most["all"] > 1


@pytest.mark.parametrize("customer", [None, "", True, {"a": 1}, "x" * 257])
async def test_an_input_without_a_usable_key_fails_its_step(world, customer):
    with pytest.raises(StepFailed) as refused:
        await ask(world.agent("wrk_1", count), 1, customer=customer)

    assert refused.value.fault.code == "state_key_missing"


async def test_a_state_that_is_too_large_fails_the_step_and_the_agent_goes_on(world):
    async def hoard(input, context):
        import random

        size = 2_000_000 if input["fail"] else 10
        context.state["hoard"] = random.Random(1).randbytes(size).hex()

    agent = world.agent("wrk_1", hoard)
    with pytest.raises(StepFailed) as refused:
        await ask(agent, 1, fail=True)
    assert refused.value.fault.code == "AF1311"

    await ask(agent, 2)
    assert len(world.kept()["hoard"]) == 20


def test_a_state_that_json_cannot_say_or_that_is_damaged_is_a_clear_error():
    with pytest.raises(StateNotJson):
        pack(Memory({"file": object()}))
    with pytest.raises(StateUnreadable):
        unpack(b"not zstd")
    assert unpack(b"").state == {}
