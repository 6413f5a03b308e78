"""The tool registry over the real stores: what is pushed stays, is found by name, and never breaks its callers."""

from collections.abc import AsyncIterator

import pytest

from agentflow.clock import ControlledClock
from agentflow.ids import TenantId, UlidSource
from agentflow.tools.load import InvalidTool, builtin_tools
from agentflow.workflow.load import InvalidWorkflow
from control_plane.registry.tools import (
    ToolBreaksCallers,
    ToolIsBuiltIn,
    ToolNotFound,
    ToolRegistry,
    ToolVersionTaken,
)
from control_plane.registry.workflows import WorkflowRegistry
from control_plane.storage.database import Database, database
from control_plane.storage.migrate import upgrade
from control_plane.storage.tools import SqlTools
from control_plane.storage.workflows import SqlWorkflows

ACME, OTHER = TenantId("acme"), TenantId("other")


def tool(version: str = "1.0.0", *, name: str = "crm.lookup", required: str = "id", output: str = "{}") -> str:
    return f"""\
apiVersion: agentflow/v1
kind: Tool
metadata: {{name: {name}, version: {version}, description: Look a customer up.}}
spec:
  run: {{type: command, argv: [/bin/cat]}}
  input: {{type: object, required: [{required}], properties: {{id: {{type: integer}}, kind: {{type: string}}}}}}
  output: {output}
  permissions: ["network.http:crm.example.com"]
  effect: at_most_once
  cost: {{dollars_per_call: 0.01}}
"""


def workflow(tool: str, input: str = '{id: "${input.id}"}') -> str:
    return f"""\
apiVersion: agentflow/v1
kind: Workflow
metadata: {{name: lookup, version: 1.0.0}}
spec:
  planner: fsm
  input: {{type: object, properties: {{id: {{type: integer}}}}}}
  fsm:
    initial_state: look
    final_states: [look]
    states:
      look:
        tool: {tool}
        input: {input}
"""


@pytest.fixture
async def db(database_dsn: str) -> AsyncIterator[Database]:
    async with database(database_dsn) as opened:
        await upgrade(opened)
        yield opened


@pytest.fixture
def tools(db: Database) -> ToolRegistry:
    return ToolRegistry(SqlTools(db), clock=ControlledClock())


@pytest.fixture
def workflows(db: Database, tools: ToolRegistry) -> WorkflowRegistry:
    clock = ControlledClock()
    return WorkflowRegistry(SqlWorkflows(db), ids=UlidSource(clock.now_ms), clock=clock, tools=tools)


async def test_a_pushed_tool_is_found_by_name_version_and_digest_and_only_by_its_tenant(tools):
    pushed, created = await tools.push(ACME, tool())
    again, repeated = await tools.push(ACME, tool() + "# a comment changes nothing\n")

    assert (created, repeated) == (True, False)
    assert await tools.find(ACME, "crm.lookup") == await tools.find(ACME, "crm.lookup@1") == pushed == again
    assert await tools.definition(ACME, pushed.digest) == pushed.definition
    assert await tools.definition(OTHER, pushed.digest) is None
    with pytest.raises(ToolNotFound):
        await tools.find(OTHER, "crm.lookup")


async def test_a_version_never_changes(tools):
    await tools.push(ACME, tool())
    with pytest.raises(ToolVersionTaken):
        await tools.push(ACME, tool().replace("Look a customer up.", "Other words."))


async def test_a_version_that_breaks_callers_of_its_major_is_refused_with_the_differences(tools):
    await tools.push(ACME, tool("1.0.0"))

    with pytest.raises(ToolBreaksCallers) as refused:
        await tools.push(ACME, tool("1.1.0", required="id, kind"))
    assert [problem.message for problem in refused.value.problems] == [
        "input.kind: callers may still send values without it, and it is required"
    ]

    await tools.push(ACME, tool("2.0.0", required="id, kind"))
    assert (await tools.find(ACME, "crm.lookup@1")).version == "1.0.0"
    assert (await tools.find(ACME, "crm.lookup")).version == "2.0.0"


async def test_a_version_between_two_must_fit_both(tools):
    await tools.push(ACME, tool("1.0.0"))
    await tools.push(ACME, tool("1.2.0", output="{type: object, required: [a], properties: {a: {type: string}}}"))

    with pytest.raises(ToolBreaksCallers):
        await tools.push(ACME, tool("1.1.0", output="{type: array}"))


async def test_while_the_major_version_is_0_the_minor_one_counts(tools):
    await tools.push(ACME, tool("0.1.0"))
    with pytest.raises(ToolBreaksCallers):
        await tools.push(ACME, tool("0.1.1", required="id, kind"))
    await tools.push(ACME, tool("0.2.0", required="id, kind"))


async def test_the_built_in_tools_are_listed_and_their_names_are_taken(tools):
    await tools.push(ACME, tool())

    listed = await tools.list(ACME)
    assert {entry.name for entry in listed if entry.builtin} == set(builtin_tools())
    assert [entry.name for entry in listed if not entry.builtin] == ["crm.lookup"]
    with pytest.raises(ToolIsBuiltIn):
        await tools.push(ACME, tool(name="http.request"))


async def test_a_wrong_definition_is_refused_at_its_line(tools):
    for change, line, said in (
        (("type: command, argv: [/bin/cat]", "type: magic"), 5, "run.type"),
        (("type: command, argv: [/bin/cat]", "type: builtin"), 5, "Only AgentFlow's own"),
        (("type: object, required", "type: objekt, required"), 6, "schema cannot be used"),
        (("network.http:crm", "all the things:crm"), 8, "not a permission"),
        (("effect: at_most_once", "effect: sometimes"), 9, "This must be"),
        (("effect: at_most_once", "afect: idempotent"), 9, "not a key"),
        (("version: 1.0.0", "version: one"), 3, "not a semantic version"),
    ):
        with pytest.raises(InvalidTool) as refused:
            await tools.push(ACME, tool().replace(*change))
        problems = refused.value.problems
        assert any(problem.line == line and said in problem.message for problem in problems), str(refused.value)


async def test_a_workflow_is_checked_against_the_tools_it_names(workflows, tools):
    await tools.push(ACME, tool())

    for text, said in (
        (workflow("crm.lookup", '{ident: "${input.id}"}'), "the input has no `id`, which is required"),
        (workflow("crm.lookup", "{id: seven}"), '"seven" is not of type "integer"'),
        (workflow("crm.lookup", '{id: "${input.id}", kind: 5}'), "`kind`: 5 is not of type"),
        (workflow("crm.lookup@2"), "There is no tool `crm.lookup@2`."),
    ):
        with pytest.raises(InvalidWorkflow) as refused:
            await workflows.register(ACME, text)
        assert any(said in problem.message and (problem.line or 0) >= 11 for problem in refused.value.problems), str(
            refused.value
        )


async def test_a_rule_to_repeat_a_call_that_must_not_be_repeated_is_refused_unless_the_tool_can_look(workflows, tools):
    await tools.push(ACME, tool(name="pay.once"))
    await tools.push(
        ACME,
        tool(name="pay.looking").replace(
            "{type: command, argv: [/bin/cat]}", '{type: function, call: "m:pay", reconcile: "m:paid"}'
        ),
    )
    retried = workflow("pay.once", "{id: 1}").replace(
        "tool: pay.once", "retry: {max_attempts: 3}\n        tool: pay.once"
    )
    assert retried != workflow("pay.once", "{id: 1}")

    with pytest.raises(InvalidWorkflow, match="never tried again"):
        await workflows.register(ACME, retried)

    await workflows.register(ACME, retried.replace("max_attempts: 3", "max_attempts: 1"))
    await workflows.register(ACME, retried.replace("pay.once", "pay.looking").replace("1.0.0", "2.0.0"))


async def test_a_tool_that_is_not_registered_is_a_warning_because_a_worker_may_host_it(workflows):
    registered, _ = await workflows.register(ACME, workflow("mine.own"))
    from agentflow.workflow.load import load

    wrong, doubtful = await workflows.tool_problems(ACME, load(registered.source).document)

    assert wrong == []
    assert "a worker must host it" in doubtful[0].message


async def test_an_execution_is_pinned_to_the_tools_as_they_were_when_it_started(workflows, tools):
    first, _ = await tools.push(ACME, tool("1.0.0"))
    registered, _ = await workflows.register(ACME, workflow("crm.lookup@1"))

    before = await workflows.ref(ACME, registered)
    second, _ = await tools.push(ACME, tool("1.1.0", output="{type: object}"))
    after = await workflows.ref(ACME, registered)

    assert before.tools == {"crm.lookup@1": first.digest}
    assert after.tools == {"crm.lookup@1": second.digest}
    assert await tools.definition(ACME, first.digest) == first.definition
