"""What the control plane believes of a worker that speaks for another tenant than its own: nothing."""

import asyncio

import msgspec

from agentflow.bus import subjects
from agentflow.clock import SystemClock
from agentflow.contracts.agent_state import ClaimState, StateRef, StateRefused, decode_answer, encode
from agentflow.contracts.pools import NOTHING_SHARED
from agentflow.contracts.step import ClaimAnswer, HeldStep, StepClaim
from agentflow.contracts.tool_questions import DefinitionAnswer, DefinitionQuestion
from agentflow.execution import messages
from agentflow.ids import WorkerId
from agentflow.testing import eventually
from control_plane.orchestrator.claiming import Claiming
from control_plane.registry.agent_states import AgentStates
from control_plane.registry.tool_questions import answer_definitions
from tests.integration import orchestrator_desk
from tests.integration.orchestrator_desk import AGENT, TENANT, completes_with_each_outcome_once

desk = orchestrator_desk.desk


async def test_a_result_from_another_tenants_worker_is_not_listened_to(desk):
    async with desk(working=False, pools=NOTHING_SHARED) as here:
        execution = await here.start({"n": 1})
        taken: asyncio.Queue = asyncio.Queue()
        await here.bus.subscribe(subjects.agent_mailbox(TENANT, AGENT, concurrency=8), taken.put_nowait)
        async with asyncio.timeout(5):
            step = await taken.get()

        here.worker.pool = "other"
        await here.worker._answer(step)
        inbox = subjects.shard_inbox(step.message.read(dict)["shard"])

        async def heard() -> bool:
            backlog = await here.bus.backlog(inbox)
            return backlog.waiting + backlog.unacked == 0

        await eventually(heard)
        assert "first" in (await here.orchestrator.state(TENANT, execution)).in_flight

        here.worker.pool = TENANT
        await here.worker._answer(step)
        async with asyncio.timeout(5):
            here.worker.receive(await taken.get())
        await completes_with_each_outcome_once(here, execution)


async def test_steps_cannot_be_called_lost_by_a_worker_of_another_tenant(desk):
    async with desk(working=False, pools=NOTHING_SHARED) as here:
        execution = await here.start({"n": 1})
        held = [HeldStep(execution, "first", 1)]
        attempt = (await here.orchestrator.state(TENANT, execution)).in_flight["first"].attempt

        assert here.orchestrator.waiting_for("other", [AGENT], since_before_ms=2**60) == []
        assert here.orchestrator.waiting_for(TENANT, [AGENT], since_before_ms=2**60) == held
        here.orchestrator.steps_lost(WorkerId("wrk_evil"), "other", held, 9)
        paused = await here.asked(execution, lambda stamp: messages.Pause(stamp, "p-1"))  # decided after that
        assert paused.in_flight["first"].attempt == attempt
        await here.asked(execution, lambda stamp: messages.Resume(stamp, "r-1"))
        here.orchestrator.steps_lost(WorkerId("wrk_ours"), TENANT, held, 9)
        state = await here.orchestrator.wait(
            TENANT, execution, lambda state: state.in_flight["first"].attempt > attempt, within_s=5
        )

        assert state.in_flight["first"].attempt == attempt + 1


async def test_the_call_of_another_tenants_tool_is_not_granted():
    async def committed(*_):
        raise AssertionError("asked about another tenant's execution")

    claiming = Claiming(committed=committed, stamp=lambda: None)
    claim = StepClaim(TENANT, "exec_1", "pay", 1, WorkerId("wrk_evil"), "1")

    answer = msgspec.json.decode(await claiming.answer("other", msgspec.json.encode(claim)), type=ClaimAnswer)

    assert not answer.granted


async def test_the_definition_of_another_tenants_tool_is_not_told():
    asked: list[tuple[str, str]] = []

    class Tools:
        async def definition(self, tenant, digest):
            asked.append((tenant, digest))
            return {"secret": "recipe"}

    class Bus:
        async def answer_pools(self, subject, handler, *, group=""):
            self.answer = handler

    bus, question = Bus(), msgspec.json.encode(DefinitionQuestion(TENANT, "digest"))
    await answer_definitions(bus, Tools())

    refused = msgspec.json.decode(await bus.answer("other", question), type=DefinitionAnswer)
    assert (refused.definition, asked) == (None, [])
    told = msgspec.json.decode(await bus.answer(TENANT, question), type=DefinitionAnswer)
    assert told.definition == {"secret": "recipe"}


async def test_what_another_tenants_agent_remembers_is_not_given_away():
    states = AgentStates(None, clock=SystemClock(), is_lost=lambda *_: True, ask_release=None)
    asked = ClaimState(StateRef(TENANT, AGENT, "main"), WorkerId("wrk_evil"))

    answer = decode_answer(await states.answer("other", encode(asked)))

    assert isinstance(answer, StateRefused)
    assert answer.code == "AF1314"
