"""The way in: a definition's text to a program, whatever its planner.

`compile` gives the program; `compile_workflow` gives beside it what the text said, for the control plane, which
registers it, and for `python -m planners`, which serves those who may not import this package.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from agentflow.errors import Problem
from agentflow.execution import program as heart
from agentflow.workflow.digest import digest
from agentflow.workflow.load import InvalidWorkflow, LoadedWorkflow, read
from agentflow.workflow.model import Workflow
from agentflow.workflow.source_map import Document
from planners.behavior_tree.compile import compile_tree
from planners.expressions.expression import Watch
from planners.fsm.compile import compile_fsm
from planners.plan import Plan


class Program(heart.Program, Protocol):
    """What the heart asks while a workflow runs, and what can be known of it before it does."""

    def plan(self) -> Plan:
        """The graph of its steps and how often each can run, as far as the definition decides it."""
        ...


@dataclass(frozen=True)
class CompiledWorkflow:
    workflow: Workflow
    digest: str
    program: Program
    document: Document


_Compiler = Callable[..., tuple[Program | None, list[Problem]]]
COMPILERS: dict[str, _Compiler] = {"fsm": compile_fsm, "behavior_tree": compile_tree}


def compile(definition: str) -> Program:  # noqa: A001 (what it is called everywhere)
    """The program of a definition (YAML). Raises `InvalidWorkflow` with every problem that could be found in one go."""
    return compile_workflow(definition).program


def compile_workflow(text: str, *, watch: Watch | None = None) -> CompiledWorkflow:
    """The program and what it was made from. Raises `InvalidWorkflow`, as `compile` does. `watch` is told of every
    evaluation of its expressions (see `tracing`)."""
    reading = read(text)
    if reading.loaded is None:
        raise InvalidWorkflow(reading.problems)
    loaded: LoadedWorkflow = reading.loaded
    workflow = loaded.workflow
    program, problems = COMPILERS[workflow.spec.planner](loaded, complete=not reading.problems, watch=watch)
    if program is None:
        raise InvalidWorkflow(reading.problems + problems)
    return CompiledWorkflow(workflow, digest(workflow), program, loaded.document)
