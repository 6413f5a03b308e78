"""A definition is compiled once, its expressions with it, however many executions follow it."""

from types import SimpleNamespace

from agentflow.ids import TenantId, WorkflowId
from control_plane.registry import workflows
from control_plane.registry.workflows import WorkflowRegistry

TENANT = TenantId("default")
TEXT = """\
apiVersion: agentflow/v1
kind: Workflow
metadata: {name: greeting, version: 1.0.0}
spec:
  planner: fsm
  fsm:
    initial_state: greet
    final_states: [bye, sorry]
    states:
      greet: {agent: greeter, transitions: [{condition: "response.confidence >= 0.8", to: bye}, {to: sorry}]}
      bye: {agent: greeter}
      sorry: {agent: greeter}
"""


class OneWorkflow:
    """A store with room for one."""

    async def add(self, _tenant, workflow, *, newest=None):
        self.kept = workflow
        return workflow

    async def get(self, _tenant, _id):
        return self.kept


async def test_a_definition_is_compiled_once_for_its_digest(monkeypatch):
    compilations = []
    compile_workflow = workflows.compile_workflow
    monkeypatch.setattr(workflows, "compile_workflow", lambda text: compilations.append(text) or compile_workflow(text))
    store = OneWorkflow()
    ids = SimpleNamespace(workflow=lambda: WorkflowId("wf_1"))
    clock = SimpleNamespace(now_ms=lambda: 1, monotonic_s=lambda: 1.0)
    registry = WorkflowRegistry(store, ids=ids, clock=clock)

    stored, _ = await registry.register(TENANT, TEXT)
    programs = [await registry.program(TENANT, stored.ref) for _ in range(10)]

    assert len(compilations) == 1
    assert all(program is programs[0] for program in programs)

    restarted = WorkflowRegistry(store, ids=ids, clock=clock)
    for _ in range(10):
        await restarted.program(TENANT, stored.ref)

    assert len(compilations) == 2, "once more after a restart, and then never again"
