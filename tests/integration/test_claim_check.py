"""Decisions over values that are not here: fetched when looked into, passed on unread, never in the history."""

from pathlib import Path

import pytest

from agentflow.artifacts.claim_check import ClaimCheck
from agentflow.artifacts.opening import open_artifacts
from agentflow.artifacts.store import KeptArtifacts
from agentflow.contracts.claims import Claim, claims_in
from agentflow.execution.events import ExecutionCompleted, ExecutionFailed, StepScheduled, WorkflowRef, encode
from agentflow.execution.messages import ChildEnded, Stamp, Start, StepReported
from agentflow.execution.state import ExecutionState
from agentflow.ids import ExecutionId, StepPath, TenantId, TraceId, WorkerId, WorkflowId
from agentflow.ports import ArtifactLost, Shelf
from control_plane.orchestrator.children import child_id
from control_plane.orchestrator.deciding import decision_for
from control_plane.storage.state_snapshots import packed, unpacked
from planners.kinds import compile_workflow

TENANT, EXECUTION = TenantId("acme"), ExecutionId("exec_1")
SHELF = Shelf(TENANT, EXECUTION)
BIG = {"text": "x" * 400_000, "n": 3}

WORKFLOW = """
apiVersion: agentflow/v1
kind: Workflow
metadata: {name: large, version: 1.0.0}
spec:
  planner: fsm
  fsm:
    initial_state: make
    final_states: [take, lost]
    states:
      make: {agent: maker, input: {all: "${input}"}, transitions: [%s], on_error: lost}
      take: {agent: taker, input: %s, on_error: lost}
      lost: {agent: taker, input: {code: "${error.code}"}}
"""


class Counting(KeptArtifacts):
    """The real store, counting what is fetched."""

    gets = 0

    async def get(self, shelf, ref):
        self.gets += 1
        return await super().get(shelf, ref)


@pytest.fixture
async def store(tmp_path: Path) -> Counting:
    opened = await open_artifacts(f"file://{tmp_path}/artifacts")
    return Counting(opened._keeper)


def program(way: str = "{to: take}", given: str = '{data: "${output}"}'):
    return compile_workflow(WORKFLOW % (way, given)).program


async def after_start(claims: ClaimCheck, compiled) -> ExecutionState:
    workflow = WorkflowRef(WorkflowId("wf_1"), "large", "1.0.0", "d")
    start = Start(Stamp(1), EXECUTION, TENANT, workflow, BIG, TraceId("t"))
    return (await decision_for(ExecutionState(), start, compiled, claims, SHELF)).state


async def after_report(claims: ClaimCheck, compiled, output: object):
    state = await after_start(claims, compiled)
    report = StepReported(Stamp(2), StepPath("make"), 1, WorkerId("w"), 1, 2, output=output)
    return await decision_for(state, report, compiled, claims, SHELF)


async def test_a_value_that_is_only_passed_on_is_never_fetched(store: Counting) -> None:
    claims = ClaimCheck(store)
    output = await claims.checked(SHELF, BIG)

    decision = await after_report(claims, program(), output)

    scheduled = decision.events[-1]
    assert isinstance(scheduled, StepScheduled)
    assert scheduled.input == {"data": output}
    assert decision.commands[0].input == {"data": output}
    assert store.gets == 0
    assert [use.artifacts for use in await store.shelves()] == [1]  # the input was the same content
    assert all(len(encode(event)) < 1024 for event in decision.events)


async def test_a_condition_that_looks_inside_gets_the_value_and_gives_it_back(store: Counting) -> None:
    claims = ClaimCheck(store)
    output = await claims.checked(SHELF, BIG)

    decision = await after_report(
        claims, program("{condition: 'n == 3 && output.text.size() == 400000', to: take}"), output
    )

    assert isinstance(decision.events[-1], StepScheduled)
    assert store.gets == 1
    with pytest.raises(Exception, match=output.ref.sha256):
        output.value  # noqa: B018 - it must be gone again


async def test_a_large_part_of_a_large_value_is_kept_beside_too(store: Counting) -> None:
    claims = ClaimCheck(store)
    output = await claims.checked(SHELF, BIG)

    decision = await after_report(claims, program(given='{data: "${output.text}", note: "n is ${output.n}"}'), output)

    scheduled = decision.events[-1]
    assert isinstance(scheduled, StepScheduled)
    assert isinstance(scheduled.input, Claim)
    assert decision.commands[0].input == scheduled.input
    assert decision.state.in_flight[scheduled.path].input == scheduled.input
    assert await claims.value(SHELF, scheduled.input) == {"data": BIG["text"], "note": "n is 3"}
    assert all(len(encode(event)) < 1024 for event in decision.events)


async def test_a_lost_value_is_a_fault_that_the_workflow_can_route(store: Counting) -> None:
    claims = ClaimCheck(store)
    output = await claims.checked(SHELF, BIG)
    compiled = program("{condition: 'n == 3', to: take}")
    state = await after_start(claims, compiled)
    await store.drop(SHELF)

    report = StepReported(Stamp(2), StepPath("make"), 1, WorkerId("w"), 1, 2, output=output)
    decision = await decision_for(state, report, compiled, claims, SHELF)

    scheduled = decision.events[-1]
    assert isinstance(scheduled, StepScheduled)
    assert (scheduled.name, scheduled.input) == ("lost", {"code": "artifact_lost"})
    with pytest.raises(ArtifactLost):
        await claims.whole(SHELF, state.input)


async def test_small_values_stay_where_they_are(store: Counting) -> None:
    claims = ClaimCheck(store)

    decision = await after_report(claims, program(), {"small": True})

    assert not list(claims_in(decision.events))
    assert not any(isinstance(event, ExecutionCompleted | ExecutionFailed) for event in decision.events)


async def test_data_with_claims_that_is_still_large_is_joined_and_kept_whole(store: Counting) -> None:
    claims = ClaimCheck(store)
    first = await claims.checked(SHELF, BIG)

    kept = await claims.checked(SHELF, {"first": first, "rest": "y" * 400_000})

    assert isinstance(kept, Claim)
    assert await claims.whole(SHELF, {"all": kept}) == {"all": {"first": BIG, "rest": "y" * 400_000}}


async def test_a_value_handed_to_another_execution_outlives_its_first_owner(store: Counting) -> None:
    claims, child = ClaimCheck(store), Shelf(TENANT, "exec_2")
    value = {"data": await claims.checked(SHELF, BIG), "n": 1}

    handed = await claims.handed_over(value, origin=SHELF, target=child)
    await store.drop(SHELF)

    assert await claims.whole(child, handed) == {"data": BIG, "n": 1}


async def test_what_a_child_answered_with_becomes_the_parents_own(store: Counting) -> None:
    claims, compiled = ClaimCheck(store), program()
    state = await after_start(claims, compiled)
    child = Shelf(TENANT, child_id(state, StepPath("make")))
    output = await claims.checked(child, {"text": "from the child" * 50_000})

    await decision_for(state, ChildEnded(Stamp(2), StepPath("make"), output), compiled, claims, SHELF)
    await store.drop(child)

    assert (await claims.value(SHELF, output))["text"].startswith("from the child")


async def test_a_snapshot_of_a_state_keeps_its_claims(store: Counting) -> None:
    claims = ClaimCheck(store)
    state = (await after_report(claims, program(), await claims.checked(SHELF, BIG))).state

    data = packed(state)

    assert len(data) < 2_000
    assert unpacked(data) == state
    assert list(claims_in(unpacked(data)))
