"""The static plan of a program: its graph of steps and how often each can run, known before anything does.

What a definition will do as far as that is decided by its text: for display, cost estimates and the plan API. The
same definition gives the same plan and the same `plan_hash`, in every process and on every machine. Each planner
makes its own (`fsm.plan`, `behavior_tree.plan`); `mermaid` draws it.
"""

from collections.abc import Iterable
from typing import Literal

import msgspec

from agentflow.canonical import sha256_hex


class PlanStep(msgspec.Struct, frozen=True, omit_defaults=True):
    """The step that a node asks for; `attempts` is how often the platform may try it."""

    name: str
    agent: str
    timeout_ms: int
    attempts: int
    tool: str | None = None


class PlanNode(msgspec.Struct, frozen=True, omit_defaults=True):
    """`id` is the state's name or the tree node's path: what the memory and the events of a run call it."""

    id: str
    kind: str
    label: str
    step: PlanStep | None = None


class PlanEdge(msgspec.Struct, frozen=True, omit_defaults=True):
    """`child` leads from a tree node to what is below it; the others lead from a state to the next."""

    source: str
    target: str
    kind: Literal["next", "error", "child"]
    label: str = ""


class StepCount(msgspec.Struct, frozen=True):
    """How often a step begins in one execution: at least `min` if it completes, at most `max` however it ends.

    None: no bound follows from the definition. Attempts of one step count once."""

    name: str
    min: int
    max: int | None


class PlanShape(msgspec.Struct, frozen=True):
    """`min` and `max` are of all steps together; alternatives exclude each other, so they are no mere sums."""

    min: int
    max: int | None
    steps: tuple[StepCount, ...]


class Plan(msgspec.Struct, frozen=True):
    planner: str
    nodes: tuple[PlanNode, ...]
    edges: tuple[PlanEdge, ...]
    shape: PlanShape
    plan_hash: str


def make_plan(planner: str, nodes: Iterable[PlanNode], edges: Iterable[PlanEdge], shape: PlanShape) -> Plan:
    nodes, edges = tuple(nodes), tuple(edges)
    # By name, so that the order in which states are written changes nothing; the order of one state's ways does.
    ways: dict[str, list[PlanEdge]] = {}
    for edge in edges:
        ways.setdefault(edge.source, []).append(edge)
    graph = msgspec.to_builtins({"planner": planner, "nodes": {node.id: node for node in nodes}, "edges": ways})
    return Plan(planner, nodes, edges, shape, sha256_hex(graph))


def add(*counts: int | None) -> int | None:
    """A sum in which None is no bound."""
    return None if None in counts else sum(count for count in counts if count is not None)


def most(counts: Iterable[int | None]) -> int | None:
    found = list(counts)
    return None if None in found else max((count for count in found if count is not None), default=0)


def times(count: int | None, factor: int) -> int | None:
    return None if count is None else count * factor
