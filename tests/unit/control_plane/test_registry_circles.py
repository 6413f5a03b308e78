"""A workflow that would start itself through others is refused when it is registered."""

import pytest

from agentflow.clock import SystemClock
from agentflow.ids import DEFAULT_TENANT, UlidSource
from agentflow.workflow.load import InvalidWorkflow
from agentflow.workflow.references import child_workflows
from control_plane.registry.workflows import WorkflowRegistry

HEAD = "apiVersion: agentflow/v1\nkind: Workflow\nmetadata: {{name: {name}, version: 1.0.0}}\nspec:\n"


def starting(name: str, *children: str) -> str:
    states = "".join(
        f"      s{at}: {{subworkflow: {{name: {child}}}, timeout: 1h, on_success: s{at + 1}}}\n"
        for at, child in enumerate(children)
    )
    machine = f"  planner: fsm\n  fsm:\n    initial_state: s0\n    final_states: [s{len(children)}]\n    states:\n"
    return f"{HEAD.format(name=name)}{machine}{states}      s{len(children)}: {{agent: x}}\n"


class Store:
    """Only what registering asks for."""

    def __init__(self) -> None:
        self._newest: dict = {}

    async def add(self, tenant, workflow, *, newest=None):
        self._newest[workflow.name] = workflow
        return workflow

    async def latest(self, tenant, name):
        return self._newest.get(name)


@pytest.fixture
def registry() -> WorkflowRegistry:
    clock = SystemClock()
    return WorkflowRegistry(Store(), ids=UlidSource(clock.now_ms), clock=clock)


async def test_a_circle_through_two_others_is_refused_at_its_place(registry):
    await registry.register(DEFAULT_TENANT, starting("b", "c"))
    await registry.register(DEFAULT_TENANT, starting("c", "a"))

    with pytest.raises(InvalidWorkflow) as caught:
        await registry.register(DEFAULT_TENANT, starting("a", "other", "b"))

    (problem,) = caught.value.problems
    assert (problem.line, problem.column) == (11, 32)
    assert problem.message == "Workflow `a` would start itself: `a` → `b` → `c` → `a`."


async def test_children_that_do_not_lead_back_are_no_circle(registry):
    await registry.register(DEFAULT_TENANT, starting("b", "c", "d"))
    await registry.register(DEFAULT_TENANT, starting("c", "d"))

    workflow, new = await registry.register(DEFAULT_TENANT, starting("a", "b", "c", "unknown"))

    assert (workflow.name, new) == ("a", True)


def test_children_of_both_planners_are_found_and_data_is_not_taken_for_one():
    tree = {"sequence": [{"subworkflow": {"workflow": "one"}}, {"subworkflow": "two"}, {"action": {"agent": "x"}}]}
    inner = {"in": {"subworkflow": {"name": "three"}, "input": {"subworkflow": {"name": "data"}}}}
    fsm = {"states": {"m": {"map": {"over": [], "do": {"states": inner}}}}}

    found = [name for name, _ in child_workflows({"spec": {"tree": tree, "fsm": fsm}})]

    assert sorted(found) == ["one", "three", "two"]
