"""Trees under the real `decide`: folding the events gives what deciding gave, whatever happens in which order."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from agentflow.contracts.step import StepFault
from agentflow.execution.decide import decide
from agentflow.execution.events import ProgramMoved, StepScheduled, VarsUpdated, WorkflowRef, decode, encode
from agentflow.execution.evolve import evolve
from agentflow.execution.messages import (
    Pause,
    Resume,
    RetryFailed,
    Stamp,
    Start,
    StepReported,
    TimeReached,
    UpdateVars,
)
from agentflow.execution.state import ExecutionState, Status, decode_state, encode_state, next_wakeup
from agentflow.ids import ExecutionId, TenantId, TraceId, WorkerId, WorkflowId
from planners.behavior_tree.statuses import TickChange, after, status_changes, statuses, ticks
from planners.kinds import compile_workflow
from tests.unit.planners.behavior_tree.play import definition
from tests.unit.planners.behavior_tree.random_trees import FLAGS, Grower, tree_program

REF = WorkflowRef(WorkflowId("wf_1"), "t", "1.0.0", "digest")
SEEDS = st.integers(min_value=0, max_value=2**32)


def start(given, at_ms: int = 1_000) -> Start:
    return Start(Stamp(at_ms), ExecutionId("exec_1"), TenantId("t"), REF, given, TraceId("x"), None)


def report(step: StepScheduled, now: int, *, well: bool, output=1) -> StepReported:
    fault = None if well else StepFault("boom", "No.")
    return StepReported(Stamp(now), step.path, step.attempt, WorkerId("w"), now, now, output, fault)


def folded(log) -> ExecutionState:
    state = ExecutionState()
    for event in log:
        state = evolve(state, decode(encode(event)))
    return state


@settings(max_examples=80, deadline=None)
@given(SEEDS, st.integers(min_value=1, max_value=40))
def test_folding_the_events_gives_the_state_that_deciding_gave(seed, size):
    chance = random.Random(seed)
    program = tree_program(Grower(chance).node(size))
    state, log, now = ExecutionState(), [], 1_000
    message = start({flag: chance.random() < 0.8 for flag in FLAGS})
    for _ in range(2_000):
        decision = decide(state, message, program)
        log += decision.events
        # Stored and read again, as after a restart.
        state = decode_state(encode_state(decision.state))
        assert state == folded(log)
        if state.ended:
            break
        flights = list(state.in_flight.values())
        if flights and chance.random() < 0.7:
            now += chance.randint(0, 500)
            message = report(chance.choice(flights), now, well=chance.random() < 0.8)
        else:
            now = max(now, next_wakeup(state) or now)
            message = TimeReached(Stamp(now))

    assert state.ended
    assert not state.waits


STORY = [
    ({"tree/a": "running", "tree": "running"}, {}),
    ({"tree/a": "succeeded", "tree/1": "succeeded", "tree/b": "running", "tree": "running"}, {"n": 1}),
    ({"tree/b": "succeeded", "tree": "succeeded"}, {}),
]


def test_every_past_tick_can_be_looked_at_from_the_events_alone():
    program = compile_workflow(
        definition("sequence: [{action: {agent: a}}, {set: {n: 1}}, {action: {agent: b}}]")
    ).program
    state, log = ExecutionState(), []
    message = start({})
    while not state.ended:
        decision = decide(state, message, program)
        log += decision.events
        state = decision.state
        for flight in state.in_flight.values():
            message = report(flight, 2_000, well=True)

    assert [(it.nodes, it.vars) for it in ticks(enumerate(log, 1))] == STORY
    assert after(list(ticks(enumerate(log, 1)))[:2]) == TickChange(
        5, 2_000, {"tree/a": "succeeded", "tree/1": "succeeded", "tree/b": "running", "tree": "running"}, {"n": 1}
    )
    story, memory = [], {}
    for event in log:
        if isinstance(event, ProgramMoved):
            memory = {key: value for key, value in memory.items() if key not in event.forgot} | event.memory
            story.append((status_changes(event.memory, event.forgot), dict(event.vars)))
            assert statuses(program.root, memory) | story[-1][0] == statuses(program.root, memory)
    assert story == STORY


REACTIVE = """
selector:
  memory: false
  children:
    - sequence: [{condition: "vars.urgent"}, {action: {agent: urgent}}]
    - action: {agent: routine}
"""


def test_a_tree_looks_again_when_somebody_changes_a_variable():
    program = compile_workflow(definition(REACTIVE, spec="  vars: {urgent: false}\n")).program
    state = decide(ExecutionState(), start({}), program).state
    assert list(state.in_flight) == ["tree/routine"]

    unchanged = decide(state, UpdateVars(Stamp(2_000), "r1", {"other": 1}), program)
    state = decide(unchanged.state, UpdateVars(Stamp(3_000), "r2", {"urgent": True}), program).state

    assert [type(event) for event in unchanged.events] == [VarsUpdated]
    assert list(state.in_flight) == ["tree/0/urgent"]
    assert decide(state, report(state.in_flight["tree/0/urgent"], 4_000, well=True), program).state.output == 1


def test_a_variable_that_is_changed_while_an_execution_is_paused_is_noticed_when_it_goes_on():
    program = compile_workflow(definition(REACTIVE, spec="  vars: {urgent: false}\n")).program
    state = decide(ExecutionState(), start({}), program).state
    state = decide(state, Pause(Stamp(2_000), "r1"), program).state

    state = decide(state, UpdateVars(Stamp(3_000), "r2", {"urgent": True}), program).state
    assert list(state.in_flight) == ["tree/routine"], "nothing new begins in a pause"
    state = decide(state, Resume(Stamp(4_000), "r3"), program).state

    assert list(state.in_flight) == ["tree/0/urgent"]


def test_a_failed_execution_that_is_retried_goes_on_where_the_tree_was():
    program = compile_workflow(definition("sequence: [{action: {agent: a}}, {action: {agent: b}}]")).program
    state = decide(ExecutionState(), start({}), program).state
    state = decide(state, report(state.in_flight["tree/a"], 2_000, well=True), program).state
    state = decide(state, report(state.in_flight["tree/b"], 3_000, well=False), program).state
    assert state.status is Status.FAILED

    state = decide(state, RetryFailed(Stamp(4_000), "again"), program).state
    assert list(state.in_flight) == ["tree/b"]
    state = decide(state, report(state.in_flight["tree/b"], 5_000, well=True, output="done"), program).state

    assert (state.status, state.output) == (Status.COMPLETED, "done")
