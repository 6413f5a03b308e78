"""The way in: a definition's text to a compiled workflow, whatever its planner.

Called by the control plane when a workflow is registered or loaded again, and by `python -m planners` for
those who may not import this package.
"""

from collections.abc import Callable
from dataclasses import dataclass

from agentflow.errors import Problem
from agentflow.execution.program import Program
from agentflow.workflow.digest import digest
from agentflow.workflow.load import InvalidWorkflow, LoadedWorkflow, read
from agentflow.workflow.model import Workflow
from agentflow.workflow.source_map import Document
from planners.behavior_tree.compile import compile_tree
from planners.behavior_tree.plan import tree_plan
from planners.behavior_tree.program import TreeProgram
from planners.fsm.compile import compile_fsm
from planners.fsm.plan import machine_plan
from planners.plan import Plan


@dataclass(frozen=True)
class CompiledWorkflow:
    workflow: Workflow
    digest: str
    program: Program
    document: Document

    def plan(self) -> Plan:
        """The graph of its steps and how often each can run, as far as the definition decides it."""
        if isinstance(self.program, TreeProgram):
            return tree_plan(self.program.root)
        return machine_plan(self.workflow.machine)


_Compiler = Callable[..., tuple[Program | None, list[Problem]]]
COMPILERS: dict[str, _Compiler] = {"fsm": compile_fsm, "behavior_tree": compile_tree}


def compile_workflow(text: str) -> CompiledWorkflow:
    """Raises `InvalidWorkflow` with every problem that could be found in one go."""
    reading = read(text)
    if reading.loaded is None:
        raise InvalidWorkflow(reading.problems)
    loaded: LoadedWorkflow = reading.loaded
    workflow = loaded.workflow
    program, problems = COMPILERS[workflow.spec.planner](loaded, complete=not reading.problems)
    if program is None:
        raise InvalidWorkflow(reading.problems + problems)
    return CompiledWorkflow(workflow, digest(workflow), program, loaded.document)
