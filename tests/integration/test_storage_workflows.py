"""The registry over the real stores: what is registered stays, is found as people refer to it, and is pinned."""

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest

from agentflow import limits
from agentflow.clock import ControlledClock
from agentflow.errors import Bug
from agentflow.execution.events import WorkflowRef
from agentflow.execution.program import RunStep, RunView
from agentflow.ids import TenantId, UlidSource, WorkflowId
from agentflow.workflow.load import InvalidWorkflow
from control_plane.registry.workflows import (
    InvalidInput,
    VersionTaken,
    WorkflowFilter,
    WorkflowNotFound,
    WorkflowRegistry,
)
from control_plane.storage.database import Database, database
from control_plane.storage.migrate import upgrade
from control_plane.storage.workflows import SqlWorkflows

ACME, OTHER = TenantId("acme"), TenantId("other")


def definition(name: str = "support", version: str = "1.0.0", agent: str = "greeter") -> str:
    return f"""\
apiVersion: agentflow/v1
kind: Workflow
metadata: {{name: {name}, version: {version}}}
spec:
  planner: fsm
  timeout: 10m
  input: {{type: object, required: [ticket], properties: {{ticket: {{type: string}}, n: {{type: integer}}}}}}
  fsm:
    initial_state: greet
    final_states: [done]
    states:
      greet: {{agent: {agent}, input: {{factor: 1e16}}, on_success: done}}
      done: {{}}
"""


@pytest.fixture
async def db(database_dsn: str) -> AsyncIterator[Database]:
    async with database(database_dsn) as opened:
        await upgrade(opened)
        yield opened


def new_registry(db: Database, clock: ControlledClock | None = None) -> WorkflowRegistry:
    clock = clock or ControlledClock()
    return WorkflowRegistry(SqlWorkflows(db), ids=UlidSource(clock.now_ms), clock=clock)


@pytest.fixture
def registry(db: Database) -> WorkflowRegistry:
    return new_registry(db)


async def test_a_registered_workflow_is_found_again_exactly_as_it_was_sent(registry: WorkflowRegistry) -> None:
    workflow, created = await registry.register(ACME, definition())

    assert created
    assert (workflow.name, workflow.version, workflow.planner) == ("support", "1.0.0", "fsm")
    assert workflow.timeout_ms == 600_000
    assert workflow.source == definition()
    factor = workflow.definition["spec"]["fsm"]["states"]["greet"]["input"]["factor"]
    for reference in (workflow.id, "support", "support@1.0.0"):
        found = await registry.find(ACME, reference)
        assert found == workflow
        again = found.definition["spec"]["fsm"]["states"]["greet"]["input"]["factor"]
        assert (again, type(again)) == (factor, type(factor))


async def test_the_same_content_again_changes_nothing_even_with_other_comments(registry: WorkflowRegistry) -> None:
    first, _ = await registry.register(ACME, definition())

    second, created = await registry.register(ACME, "# the same\n" + definition())

    assert (second, created) == (first, False)
    assert await registry.count(ACME) == 1


async def test_another_content_under_a_registered_version_is_refused(registry: WorkflowRegistry) -> None:
    first, _ = await registry.register(ACME, definition())

    with pytest.raises(VersionTaken, match=r"Version 1\.0\.0 of `support`"):
        await registry.register(ACME, definition(agent="somebody_else"))

    assert await registry.find(ACME, "support") == first


async def test_of_registrations_at_once_one_is_new_and_all_agree(db: Database) -> None:
    answers = await asyncio.gather(*(new_registry(db).register(ACME, definition()) for _ in range(5)))

    assert len({workflow.id for workflow, _ in answers}) == 1
    assert sorted(created for _, created in answers) == [False] * 4 + [True]


async def test_a_name_alone_means_its_highest_release(registry: WorkflowRegistry) -> None:
    for version in ("1.10.0", "1.9.0", "2.0.0-rc.1", "1.2.0"):
        await registry.register(ACME, definition(version=version))

    assert (await registry.find(ACME, "support")).version == "1.10.0"
    assert (await registry.find(ACME, "support@2.0.0-rc.1")).version == "2.0.0-rc.1"


@pytest.mark.parametrize(
    ("reference", "hint"),
    [
        ("suport", "Did you mean `support`?"),
        ("support@3.0.0", "Newest versions of `support`: 1.0.0."),
        ("wf_01ARZ3NDEKTSV4RRFFQ69G5FAV", "Known workflows: support."),
    ],
)
async def test_an_unknown_workflow_is_answered_with_what_there_is(
    registry: WorkflowRegistry, reference: str, hint: str
) -> None:
    await registry.register(ACME, definition())

    with pytest.raises(WorkflowNotFound) as unknown:
        await registry.find(ACME, reference)

    assert reference in unknown.value.message
    assert unknown.value.hint == hint


async def test_tenants_do_not_see_each_others_workflows(registry: WorkflowRegistry) -> None:
    workflow, _ = await registry.register(ACME, definition())

    for reference in (workflow.id, "support", "support@1.0.0"):
        with pytest.raises(WorkflowNotFound, match="There is no workflow") as unknown:
            await registry.find(OTHER, reference)
        assert unknown.value.hint == "Register one first: `af workflow push FILE`."
    assert await registry.list(OTHER, limit=10) == []
    _, created = await registry.register(OTHER, definition(agent="somebody_else"))
    assert created


async def test_lists_are_newest_first_limited_and_counted(registry: WorkflowRegistry) -> None:
    for name, version in (("a", "1.0.0"), ("b", "1.0.0"), ("a", "1.1.0")):
        await registry.register(ACME, definition(name, version))

    assert [(item.name, item.version) for item in await registry.list(ACME, limit=2)] == [
        ("a", "1.1.0"),
        ("b", "1.0.0"),
    ]
    assert [item.version for item in await registry.list(ACME, WorkflowFilter(name="a"), limit=10)] == [
        "1.1.0",
        "1.0.0",
    ]
    assert (await registry.count(ACME), await registry.count(ACME, WorkflowFilter(name="a"))) == (3, 2)


async def test_a_program_is_the_one_an_execution_is_pinned_to_also_after_a_restart(db: Database) -> None:
    first, _ = await new_registry(db).register(ACME, definition(agent="first"))
    await new_registry(db).register(ACME, definition(version="2.0.0", agent="second"))
    restarted = new_registry(db)

    program = await restarted.program(ACME, first.ref)

    (step,) = program.begin(RunView({"ticket": "x"}, {}, first.ref, {}, {}, 0, 0.0))
    assert isinstance(step, RunStep)
    assert step.agent == "first"
    assert await restarted.program(ACME, first.ref) is program


async def test_a_program_is_never_compiled_from_a_source_with_another_digest(db: Database) -> None:
    workflow, _ = await new_registry(db).register(ACME, definition())

    with pytest.raises(Bug, match="another digest"):
        await new_registry(db).program(ACME, msgspec.structs.replace(workflow.ref, digest="0" * 64))
    with pytest.raises(WorkflowNotFound):
        await new_registry(db).program(ACME, WorkflowRef(WorkflowId("wf_gone"), "support", "1.0.0", "0" * 64))


async def test_an_input_that_breaks_the_schema_is_refused_with_every_problem(registry: WorkflowRegistry) -> None:
    workflow, _ = await registry.register(ACME, definition())

    registry.check_input(workflow, {"ticket": "help"})
    with pytest.raises(InvalidInput) as refused:
        registry.check_input(workflow, {"n": "x"})

    assert sorted(problem.path for problem in refused.value.problems) == ["input", "input.n"]


async def test_an_input_schema_that_does_not_work_is_refused_with_its_line_and_nothing_is_stored(
    registry: WorkflowRegistry,
) -> None:
    broken = definition().replace("type: string", "type: strong").replace("on_success: done", "on_success: nowhere")

    with pytest.raises(InvalidWorkflow) as refused:
        await registry.register(ACME, broken)

    line, text = 7, definition().splitlines()[6]
    places = {(problem.path, problem.line, problem.column) for problem in refused.value.problems}
    assert ("spec.input.properties.ticket.type", line, text.index("string") + 1) in places
    assert any("nowhere" in problem.message for problem in refused.value.problems)  # both in one answer
    assert await registry.count(ACME) == 0


async def test_a_version_registered_by_another_replica_is_the_newest_here_after_a_moment(db: Database) -> None:
    clock = ControlledClock()
    here, elsewhere = new_registry(db, clock), new_registry(db)
    await here.register(ACME, definition(version="1.0.0"))
    assert (await here.find(ACME, "support")).version == "1.0.0"

    await elsewhere.register(ACME, definition(version="1.1.0"))
    await clock.advance(limits.NEWEST_VERSION_KNOWN_S)

    assert (await here.find(ACME, "support")).version == "1.1.0"


async def test_a_version_registered_here_is_the_newest_at_once(registry: WorkflowRegistry) -> None:
    for version in ("1.0.0", "1.0.1", "1.2.0"):
        await registry.register(ACME, definition(version=version))
        assert (await registry.find(ACME, "support")).version == version


async def test_what_is_kept_ready_of_one_tenant_is_not_found_by_another(registry: WorkflowRegistry) -> None:
    workflow, _ = await registry.register(ACME, definition())
    for reference in ("support", "support@1.0.0", workflow.id):
        await registry.find(ACME, reference)

        with pytest.raises(WorkflowNotFound):
            await registry.find(OTHER, reference)
