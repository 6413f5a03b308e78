"""What a behaviour tree may contain: every kind of node, its options, and the tree they make.

Beside `model`, which keeps `spec.tree` as it was written. A node is a mapping with one key, its kind; most kinds
have a short form (`condition: "…"`, `sequence: [ … ]`) that stands for the one option everybody writes.
Read by `tree_load`, judged by `tree_rules`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

from pydantic import BeforeValidator, Field

from agentflow import limits
from agentflow.workflow.model import (
    AgentName,
    Delay,
    JsonSchema,
    Name,
    Part,
    RetryRule,
    Timeout,
    ToolReference,
    VersionRange,
    WorkflowName,
    refusal,
)
from agentflow.workflow.source_map import Path


def _threshold(value: Any) -> Any:
    if value in ("all", "any") or (isinstance(value, int) and not isinstance(value, bool) and value >= 1):
        return value
    written = value if isinstance(value, str | int | float) else type(value).__name__
    raise refusal(f"`{written}` is not a number of children.", "Write `all`, `any`, or how many must succeed.")


class NodePart(Part):
    """`name` is how a node is shown and, for a step, what `steps.<name>` says."""

    name: Name | None = None


class Composite(NodePart):
    children: list[Any] = Field(min_length=1)
    memory: bool = True


class Parallel(NodePart):
    """Succeeds with `success` children (all unless said), fails with `failure` (when success is out of reach)."""

    children: list[Any] = Field(min_length=1)
    success: Annotated[int | str, BeforeValidator(_threshold)] = "all"
    failure: int | None = Field(default=None, ge=1)


class ConditionalSelector(NodePart):
    branches: list[Any] = Field(min_length=1)
    memory: bool = True


class Branch(Part):
    do: Any
    when: str | None = None


class Wrapper(NodePart):
    """`invert`, `force_success` and `force_failure`."""

    do: Any


class RetryNode(NodePart):
    do: Any
    attempts: int = Field(ge=1, le=limits.TREE_LOOPS_MAX)
    delay: Delay = 0


class RepeatNode(NodePart):
    """Without `until`, all `times` must succeed; with it, one of them must make it hold."""

    do: Any
    times: int = Field(ge=1, le=limits.TREE_LOOPS_MAX)
    until: str | None = None


class TimeoutNode(NodePart):
    do: Any
    after: Timeout


class CooldownNode(NodePart):
    do: Any
    for_: Timeout = Field(alias="for")


class GuardNode(NodePart):
    do: Any
    when: str


class Condition(NodePart):
    when: str


class Action(NodePart):
    agent: AgentName | None = None
    tool: ToolReference | None = None
    input: Any = Field(default={})
    output: JsonSchema | None = None
    timeout: Timeout | None = None
    retry: RetryRule | None = None
    vars: dict[Name, Any] = Field(default={})


class SetVars(NodePart):
    vars: dict[Name, Any] = Field(min_length=1)


class Wait(NodePart):
    for_: Timeout | None = Field(default=None, alias="for")
    until: Any = None  # a template that gives a moment: RFC 3339 text or milliseconds


class Signal(NodePart):
    signal: Name
    vars: dict[Name, Any] = Field(default={})


class Human(NodePart):
    title: str = Field(min_length=1, max_length=512)
    instructions: str = ""
    form: JsonSchema | None = None
    assignees: list[str] = Field(default=[])
    vars: dict[Name, Any] = Field(default={})


class Subworkflow(NodePart):
    workflow: WorkflowName
    version: VersionRange = "*"
    input: Any = Field(default={})
    vars: dict[Name, Any] = Field(default={})


class SubtreeUse(NodePart):
    use: Name
    with_: dict[Name, Any] = Field(default={}, alias="with")


class SubtreePart(Part):
    tree: Any
    params: list[Name] = Field(default=[])


class Kind(NamedTuple):
    """How a kind of node is written: `short` is the option that its short form stands for."""

    part: type[NodePart]
    short: str | None
    children: str | None = None  # the option that holds its child or children


KINDS: dict[str, Kind] = {
    "sequence": Kind(Composite, "children", "children"),
    "selector": Kind(Composite, "children", "children"),
    "parallel": Kind(Parallel, "children", "children"),
    "conditional_selector": Kind(ConditionalSelector, "branches", "branches"),
    "invert": Kind(Wrapper, "do", "do"),
    "force_success": Kind(Wrapper, "do", "do"),
    "force_failure": Kind(Wrapper, "do", "do"),
    "retry": Kind(RetryNode, None, "do"),
    "repeat": Kind(RepeatNode, None, "do"),
    "timeout": Kind(TimeoutNode, None, "do"),
    "cooldown": Kind(CooldownNode, None, "do"),
    "guard": Kind(GuardNode, None, "do"),
    "condition": Kind(Condition, "when"),
    "action": Kind(Action, None),
    "set": Kind(SetVars, "vars"),
    "wait": Kind(Wait, "for"),
    "signal": Kind(Signal, "signal"),
    "human": Kind(Human, None),
    "subworkflow": Kind(Subworkflow, "workflow"),
    "subtree": Kind(SubtreeUse, "use"),
}
STEPS = frozenset({"action", "subworkflow", "human", "signal"})


@dataclass(frozen=True)
class TreeNode:
    """One node as it was written; `path` is where its options stand in the document."""

    kind: str
    part: NodePart
    path: Path
    short: bool = False
    children: tuple["TreeNode", ...] = ()
    branches: tuple[tuple[Path, str | None], ...] = ()  # of a conditional_selector: where each is, and its `when`

    def place(self, option: str) -> Path:
        """Where the value of an option stands."""
        return self.path if self.short and option == KINDS[self.kind].short else (*self.path, option)

    def walk(self) -> Iterator["TreeNode"]:
        """This node and all below it, in the order of the text."""
        rest = [self]
        while rest:
            node = rest.pop()
            yield node
            rest.extend(reversed(node.children))


@dataclass(frozen=True)
class Subtree:
    params: tuple[str, ...]
    root: TreeNode


@dataclass(frozen=True)
class Tree:
    root: TreeNode
    subtrees: dict[str, Subtree]
