"""Nothing is begun that a used-up budget covers, and whatever stands still for it goes on. Programs here run `a`, then
`b`; what is used up is said by hand."""

import msgspec
import pytest

from agentflow.execution import messages
from agentflow.execution.commands import DispatchStep
from agentflow.execution.decide import decide
from agentflow.execution.events import Queued, type_of
from agentflow.execution.messages import Stamp, TimeReached
from agentflow.execution.state import ExecutionState, Status
from control_plane.costs.budget import Budget, BudgetUsedUp, Used
from control_plane.orchestrator.inbox import Inbox
from control_plane.orchestrator.within_budget import Unbudgeted, WithinBudget
from tests.unit.agentflow.execution.scripted import UndoingScript, step
from tests.unit.agentflow.execution.test_decide import HOPELESS, PROGRAM, UNLUCKY, play, report, start

LATER = Stamp(3_000)


class Said(Unbudgeted):
    """Budgets as the test says: those of these scopes are used up."""

    def __init__(self, *used_up: tuple[str, str]) -> None:
        super().__init__()
        self.used_up = list(used_up)

    @property
    def short(self) -> bool:
        return bool(self.used_up)

    def forbids(self, tenant, workflows, agents):
        for scope, name in self.used_up:
            one = Budget(
                tenant=tenant, id=f"bud_{scope}_{name}", scope=scope, name=name, period="total", microdollars=1,
                tokens=None, on_exceed="stop", warn_at_percent=80, created_at_ms=0,
            )  # fmt: skip
            if one.covers(workflows, agents):
                return BudgetUsedUp(one, Used(1), 0)
        return None

    def holds(self, tenant, budget):
        return any(budget == f"bud_{scope}_{name}" for scope, name in self.used_up)


class Desk:
    def __init__(self, *used_up: tuple[str, str], program=PROGRAM) -> None:
        self.program = program
        self.said = Said(*used_up)
        self.inbox = Inbox()
        self.within = WithinBudget(budgets=self.said, inbox=self.inbox, stamp=lambda: LATER, shards=16)

    async def decided(self, state, message):
        async def again(before, other):
            return decide(before, other, self.program)

        return await self.within.decision(state, message, decide(state, message, self.program), again)

    def posted(self):
        return [arrival.message for arrival in self.inbox.take()]


def types(decision):
    return [type_of(event) for event in decision.events]


@pytest.mark.parametrize("used_up", [("tenant", ""), ("workflow", "line"), ("agent", "worker")])
async def test_the_result_is_kept_and_the_next_step_is_not_begun(used_up):
    desk = Desk(used_up)
    begun = play(start()).state

    decision = await desk.decided(begun, report("a", output={"n": 2}))

    assert types(decision) == ["execution.paused.v1", "step.succeeded.v1"]
    assert decision.commands == ()
    assert (decision.state.status, decision.state.held_by) == (Status.PAUSED, f"bud_{used_up[0]}_{used_up[1]}")


@pytest.mark.parametrize("used_up", [("workflow", "other"), ("agent", "nobody")])
async def test_what_a_budget_does_not_cover_goes_on(used_up):
    decision = await Desk(used_up).decided(play(start()).state, report("a"))

    assert types(decision) == ["step.succeeded.v1", "step.scheduled.v1"]


async def test_an_execution_that_spends_nothing_more_comes_to_its_end():
    decision = await Desk(("tenant", "")).decided(play(start(), report("a")).state, report("b"))

    assert types(decision)[-1] == "execution.completed.v1"


async def test_nothing_new_begins_and_nothing_that_was_queued():
    desk = Desk(("tenant", ""))
    with pytest.raises(BudgetUsedUp):
        await desk.decided(play().state, start())
    queued = play(msgspec.structs.replace(start(), queue=Queued(None, 1))).state
    assert queued.status is Status.QUEUED
    with pytest.raises(BudgetUsedUp):
        await desk.decided(queued, messages.Admitted(LATER))
    again = await desk.decided(play(start()).state, start())
    assert again.events == (), "one that was begun before is only looked at"


async def test_no_attempt_and_no_retry_begins_and_no_step_runs_out_of_time():
    desk = Desk(("tenant", ""))
    waiting = play(start(), report("a", fault=UNLUCKY)).state
    due = await desk.decided(waiting, TimeReached(Stamp(9_000)))
    assert types(due) == ["execution.paused.v1"]

    late = await desk.decided(play(start(at_ms=1_000)).state, TimeReached(Stamp(6_000)))
    assert types(late) == ["execution.paused.v1"], "it may never have been sent"

    failed = play(start(), report("a", fault=HOPELESS)).state
    with pytest.raises(BudgetUsedUp):
        await desk.decided(failed, messages.RetryFailed(LATER, "r1"))


async def test_a_person_cannot_let_it_go_on_but_can_cancel_and_end_it():
    desk = Desk(("tenant", ""))
    held = (await desk.decided(play(start()).state, report("a"))).state

    with pytest.raises(BudgetUsedUp):
        await desk.decided(held, messages.Resume(LATER, "r1"))
    assert (await desk.decided(held, messages.Cancel(LATER, "r2"))).state.status is Status.CANCELLED
    assert (await desk.decided(held, messages.Terminate(LATER, "r3"))).state.ended
    by_hand = (await desk.decided(held, messages.Pause(LATER, "r4", "lunch"))).state
    assert (by_hand.status, by_hand.held_by, len(by_hand.held)) == (Status.PAUSED, "", 1)


async def test_whatever_stands_still_goes_on_by_itself_and_whatever_a_person_paused_does_not():
    desk = Desk(("tenant", ""))
    held = (await desk.decided(play(start()).state, report("a"))).state
    desk.within.moved(held)

    desk.said.looked()
    assert desk.posted() == [], "it is still used up"
    desk.said.used_up = []
    desk.said.looked()
    (resume,) = desk.posted()
    went_on = await desk.decided(held, resume)
    assert types(went_on) == ["execution.resumed.v1", "step.scheduled.v1"]
    assert [command.path for command in went_on.commands] == ["b"]
    desk.within.moved(went_on.state)
    desk.said.looked()
    assert desk.posted() == [], "it has gone on"
    assert decide(went_on.state, resume, PROGRAM).events == (), "told twice, it goes on once"

    by_hand = decide(held, messages.Pause(LATER, "r4", "lunch"), PROGRAM).state
    assert decide(by_hand, resume, PROGRAM).events == ()


async def test_one_that_another_budget_stops_as_well_waits_for_that_one_then():
    desk = Desk(("tenant", ""), ("agent", "worker"))
    held = (await desk.decided(play(start()).state, report("a"))).state
    desk.within.moved(held)

    desk.said.used_up = [("agent", "worker")]
    desk.said.looked()
    (resume,) = desk.posted()
    waits_on = await desk.decided(held, resume)

    assert types(waits_on) == ["execution.paused.v1"]
    assert (waits_on.state.held_by, len(waits_on.state.held)) == ("bud_agent_worker", 1)


async def test_a_step_that_waited_to_be_sent_has_all_its_time_when_it_goes_on():
    desk = Desk(("tenant", ""))
    begun = play(start(at_ms=1_000)).state
    assert desk.within.withholds(begun, "worker")
    (pause,) = desk.posted()
    held = decide(begun, pause, PROGRAM).state
    desk.within.moved(held)
    assert desk.within.withholds(held, "worker")
    assert desk.posted() == [], "it is paused already"

    desk.said.used_up = []
    desk.within._stamp = lambda: Stamp(9_000_000)
    desk.said.looked()
    (resume,) = desk.posted()
    went_on = decide(held, resume, PROGRAM)
    assert types(went_on) == ["execution.resumed.v1", "step.excused.v1"]
    assert not desk.within.withholds(went_on.state, "worker")


async def test_undoing_is_never_held_back():
    program = UndoingScript((step("a"),), (step("undo"),), a=(step("b"),))
    desk = Desk(("tenant", ""), program=program)
    begun = decide(decide(ExecutionState(), start(), program).state, report("a"), program).state

    undoing = await desk.decided(begun, messages.Cancel(LATER, "r"))

    assert [command.path for command in undoing.commands if isinstance(command, DispatchStep)] == ["undo"]
    assert not desk.within.withholds(undoing.state, "worker")
