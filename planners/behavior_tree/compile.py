"""A loaded workflow to a behaviour tree program, or every problem of its tree and its expressions at once.

The shape is read by `agentflow.workflow.tree_load` and judged by `tree_rules`; here subtrees are written out where
they are used, steps get their names, and each expression is checked against what is known at its place: which
step can come before it, and whether a fault can.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import msgspec

from agentflow import limits
from agentflow.contracts.step import TOOLS_AGENT, StepFault
from agentflow.errors import Bug, Problem
from agentflow.ids import AgentName
from agentflow.workflow import tree as written
from agentflow.workflow.load import LoadedWorkflow
from agentflow.workflow.model import TreeSpec
from agentflow.workflow.source_map import Path, path_text
from agentflow.workflow.tree import Tree, TreeNode
from agentflow.workflow.tree_load import read_tree
from agentflow.workflow.tree_rules import step_names, tree_problems
from planners.behavior_tree.choice import ConditionalSelector
from planners.behavior_tree.condition import Condition, SetVars
from planners.behavior_tree.guard import Guard
from planners.behavior_tree.leaves import Action, Human, Signal, Subworkflow, Wait
from planners.behavior_tree.loops import Repeat, Retry
from planners.behavior_tree.node import Node
from planners.behavior_tree.ordered import Ordered, yielders
from planners.behavior_tree.parallel import Parallel
from planners.behavior_tree.program import TreeProgram
from planners.behavior_tree.result import FAILED, SUCCEEDED, Result
from planners.behavior_tree.subtree import Subtree
from planners.behavior_tree.timing import Cooldown, Timeout
from planners.behavior_tree.wrappers import ForceFailure, ForceSuccess, Invert
from planners.expressions.evaluate import Expression
from planners.expressions.expression import Watch
from planners.expressions.scope import RESERVED, Scope
from planners.expressions.shapes import ANYTHING, Shape, shape_of
from planners.expressions.templates import Template
from planners.placed import Placed
from planners.rules import retry_of

_WRAPPERS = {"invert": Invert, "force_success": ForceSuccess, "force_failure": ForceFailure}
# Stands where an expression has a fault: the tree it is in is never run.
_UNUSABLE = cast(Expression, None)


def compile_tree(
    loaded: LoadedWorkflow, *, complete: bool = True, watch: Watch | None = None
) -> tuple[TreeProgram | None, list[Problem]]:
    """The program, or None and all problems. `complete=False`: the definition lost parts on the way here. `watch` is
    told of every evaluation."""
    spec = loaded.workflow.spec
    if not isinstance(spec, TreeSpec):
        raise Bug(f"A workflow of planner {spec.planner} was taken for a behaviour tree.")
    tree, problems = read_tree(loaded, spec)
    if tree is None:
        return None, problems
    complete = complete and not problems
    problems += tree_problems(loaded.document, tree, timed=spec.timeout is not None, complete=complete)
    if too_many := _too_many_expressions(loaded, spec):
        return None, [*problems, too_many]
    known = _vars_of(spec, tree)
    builder = _Builder(loaded, tree, known, complete=complete, watch=watch)
    root = builder.whole()
    problems += builder.problems
    return (None, problems) if problems or not complete else (TreeProgram(root, spec.vars, known.fields), [])


def _too_many_expressions(loaded: LoadedWorkflow, spec: TreeSpec) -> Problem | None:
    texts = msgspec.json.encode([spec.tree, spec.subtrees])
    count = texts.count(b"${") + texts.count(b'"when":') + texts.count(b'"condition":') + texts.count(b'"until":')
    if count <= limits.EXPRESSIONS_PER_WORKFLOW_MAX:
        return None
    message = f"There are {count} expressions; {limits.EXPRESSIONS_PER_WORKFLOW_MAX} are allowed."
    return Problem(message, "Split the workflow.", *loaded.document.key_position(("spec", "tree")), "spec.tree")


class _Any(dict[str, Shape]):
    """The steps of a tree that lost some on the way: every name may be one."""

    def __missing__(self, name: str) -> Shape:
        return ANYTHING


@dataclass(frozen=True)
class _Place:
    """Where in the tree a node is built: its path, and what is known there."""

    path: str
    before: Shape | None  # the output of the step before; None where no step can be
    has_error: bool
    steps: Mapping[str, Shape]
    names: Mapping[Path, str]
    prefix: str = ""
    params: tuple[str, ...] = ()

    def below(self, label: object, before: Shape | None, *, has_error: bool | None = None) -> "_Place":
        error = self.has_error if has_error is None else has_error
        return replace(self, path=f"{self.path}/{label}", before=before, has_error=error)


class _Builder:
    def __init__(self, loaded: LoadedWorkflow, tree: Tree, vars: Shape, *, complete: bool, watch: Watch | None) -> None:
        self._watch = watch
        self._document = loaded.document
        self._placed = Placed(loaded.document)
        self.problems = self._placed.problems
        self._input = shape_of(loaded.workflow.spec.input)
        self._tree = tree
        self._vars_known = vars
        self._complete = complete
        self._count = 0
        # A subtree is checked and compiled once, however often it is used.
        self._conditions: dict[Path, Expression] = {}
        self._templates: dict[Path, Template] = {}
        self._seen: set[str] = set()
        self._within: tuple[str, ...] = ()  # the subtrees being written out, outermost first

    def whole(self) -> Node:
        root = self._world(self._tree.root, "tree", "")
        for name, subtree in self._tree.subtrees.items():
            self._refuse_reserved(name, subtree.params)
            if name not in self._seen:  # a problem already; what is wrong inside it is told all the same
                self._world(subtree.root, name, "", subtree.params)
        return root

    def _refuse_reserved(self, subtree: str, params: tuple[str, ...]) -> None:
        for at, param in enumerate(params):
            if param in RESERVED:
                path = ("spec", "subtrees", subtree, "params", at)
                message = f"A parameter cannot be named `{param}`: expressions know that name already."
                self.problems.append(
                    Problem(message, "Choose another.", *self._document.position(path), path_text(path))
                )

    def _world(self, root: TreeNode, path: str, prefix: str, params: tuple[str, ...] = ()) -> Node:
        """A tree or a subtree: its steps see each other and no one else's."""
        names = step_names(root)
        steps = {
            names[node.path]: shape_of(getattr(node.part, "output", None))
            for node in root.walk()
            if isinstance(node.part, written.Action) or (node.kind in written.STEPS and node.part.name is not None)
        }
        place = _Place(path, None, has_error=False, steps=steps, names=names, prefix=prefix, params=params)
        return self._node(root, place)[0]

    def _node(self, node: TreeNode, place: _Place) -> tuple[Node, Shape | None]:
        """The node, and what is known of `output` once it has succeeded."""
        self._count += 1
        if self._count > limits.TREE_NODES_MAX or self._placed.full:
            return self._stand_in(place), ANYTHING  # there are problems: nobody will run this
        match node.kind:
            case "sequence":
                return self._sequence(node, place)
            case "selector":
                return self._selector(node, place)
            case "parallel":
                return self._parallel(node, place)
            case "conditional_selector":
                return self._choice(node, place)
            case "subtree":
                return self._subtree(node, place)
            case "condition" | "set" | "action" | "wait" | "signal" | "human" | "subworkflow":
                return self._leaf(node, place)
            case _:
                return self._decorated(node, place)

    def _sequence(self, node: TreeNode, place: _Place) -> tuple[Node, Shape | None]:
        at = self._count - 1
        children, before = [], place.before
        for position, child in enumerate(node.children):
            built, before = self._node(child, place.below(self._label(child, position, place), before))
            children.append(built)
        return self._ordered(node, place, at, children, FAILED), before

    def _selector(self, node: TreeNode, place: _Place) -> tuple[Node, Shape | None]:
        at = self._count - 1
        children, afters = [], []
        for position, child in enumerate(node.children):
            label = self._label(child, position, place)
            built, after = self._node(
                child, place.below(label, place.before, has_error=place.has_error or position > 0)
            )
            children.append(built)
            afters.append(after)
        return self._ordered(node, place, at, children, SUCCEEDED), _any_of(afters)

    def _ordered(self, node: TreeNode, place: _Place, at: int, children: list[Node], decides: Any) -> Node:
        part = cast(written.Composite, node.part)
        return Ordered(
            **self._common(place, at, children, looks=not part.memory),
            memory=part.memory,
            decides=decides,
            yielders=yielders(children),
        )

    def _parallel(self, node: TreeNode, place: _Place) -> tuple[Node, Shape | None]:
        at, part = self._count - 1, cast(written.Parallel, node.part)
        children = [
            self._node(child, place.below(self._label(child, position, place), place.before))[0]
            for position, child in enumerate(node.children)
        ]
        success = {"all": len(children), "any": 1}.get(str(part.success)) or int(part.success)
        failure = len(children) - success + 1 if part.failure is None else part.failure
        common = self._common(place, at, children)
        starts = tuple(child.at for child in children)
        names = tuple(child.path.rpartition("/")[2] for child in children)
        after = ANYTHING if common["can_yield"] else place.before
        return Parallel(**common, success=success, failure=failure, starts=starts, names=names), after

    def _choice(self, node: TreeNode, place: _Place) -> tuple[Node, Shape | None]:
        at, part = self._count - 1, cast(written.ConditionalSelector, node.part)
        conditions = tuple(
            None if when is None else self._condition(when, (*path, "when"), place) for path, when in node.branches
        )
        children, afters = [], []
        for position, child in enumerate(node.children):
            built, after = self._node(child, place.below(self._label(child, position, place), place.before))
            children.append(built)
            afters.append(after)
        common = self._common(place, at, children, looks=not part.memory)
        return ConditionalSelector(**common, memory=part.memory, conditions=conditions), _any_of(afters)

    def _decorated(self, node: TreeNode, place: _Place) -> tuple[Node, Shape | None]:
        at, part = self._count - 1, node.part
        condition = None
        if isinstance(part, written.GuardNode):
            condition = self._condition(part.when, node.place("when"), place)
        (child,) = node.children
        built, after = self._node(child, place.below(self._label(child, 0, place), place.before))
        common = self._common(place, at, [built], looks=condition is not None)
        match part:
            case written.GuardNode():
                return Guard(**common, condition=condition or _UNUSABLE), after
            case written.RetryNode():
                return Retry(**common, attempts=part.attempts, delay_ms=part.delay), after
            case written.RepeatNode():
                seen = replace(place, before=after)
                until = None if part.until is None else self._condition(part.until, node.place("until"), seen)
                return Repeat(**common, times=part.times, until=until), after
            case written.TimeoutNode():
                return Timeout(**common, after_ms=part.after), after
            case written.CooldownNode():
                return Cooldown(**common, for_ms=part.for_), after
        if node.kind == "force_success":
            return ForceSuccess(**common), _any_of([place.before, after])
        return _WRAPPERS[node.kind](**common | {"can_yield": False}), place.before

    def _leaf(self, node: TreeNode, place: _Place) -> tuple[Node, Shape | None]:
        common, part = self._common(place, self._count - 1, []), node.part
        match part:
            case written.Condition():
                condition = self._condition(part.when, node.place("when"), place)
                return Condition(**common, condition=condition, unmet=_unmet(part.when)), place.before
            case written.SetVars():
                return SetVars(**common, values=self._template(part.vars, node.place("vars"), place)), place.before
            case written.Action():
                return self._action(node, part, place, common)
            case written.Wait():
                until = None if part.until is None else self._template(part.until, node.place("until"), place)
                return Wait(**common, for_ms=part.for_, until=until), place.before
            case written.Signal() | written.Human() | written.Subworkflow():
                return self._answered(node, part, place, common)
            case _:
                raise Bug(f"There is no leaf of kind {node.kind}.")

    def _answered(
        self,
        node: TreeNode,
        part: written.Signal | written.Human | written.Subworkflow,
        place: _Place,
        common: dict[str, Any],
    ) -> tuple[Node, Shape | None]:
        """A leaf that waits for somebody. With a name, what came is `steps.<name>.output`, and `output` after it."""
        common |= {"can_yield": part.name is not None, "vars": self._vars(node, part.vars, place)}
        common |= {"name": "" if part.name is None else place.prefix + part.name}
        after = place.before if part.name is None else ANYTHING
        match part:
            case written.Signal():
                return Signal(**common, signal=part.signal), after
            case written.Human():
                return Human(**common, task=self._task(node, part, place)), after
            case written.Subworkflow():
                given = self._template(part.input, node.place("input"), place)
                return Subworkflow(**common, workflow=part.workflow, version=part.version, input=given), after

    def _task(self, node: TreeNode, part: written.Human, place: _Place) -> Template:
        said = part.model_dump(include={"title", "instructions", "assignees"})
        plain = {} if part.form is None else {"form": part.form}
        if node.path not in self._templates:
            self._templates[node.path] = self._placed.task(said, plain, {}, self._scope(place), node.path[:-1])
        return self._templates[node.path]

    def _action(
        self, node: TreeNode, part: written.Action, place: _Place, common: dict[str, Any]
    ) -> tuple[Node, Shape | None]:
        name, shape = place.names[node.path], shape_of(part.output)
        made = Action(
            **common | {"can_yield": True},
            name=place.prefix + name,
            vars=self._vars(node, part.vars, place, shape),
            agent=TOOLS_AGENT if part.agent is None else AgentName(part.agent),
            tool=part.tool,
            input=self._template(part.input, node.place("input"), place),
            timeout_ms=limits.STEP_TIMEOUT_MS_DEFAULT if part.timeout is None else part.timeout,
            retry=retry_of(part.retry),
        )
        return made, shape

    def _subtree(self, node: TreeNode, place: _Place) -> tuple[Node, Shape | None]:
        at, part = self._count - 1, cast(written.SubtreeUse, node.part)
        params = self._template(part.with_, node.place("with"), place)
        subtree = self._tree.subtrees.get(part.use)
        if subtree is None or part.use in self._within:
            return self._stand_in(place), ANYTHING
        self._seen.add(part.use)
        outside, self._within = self._within, (*self._within, part.use)
        prefix = f"{place.prefix}{place.names[node.path]}/"
        child = self._world(subtree.root, f"{place.path}/{part.use}", prefix, subtree.params)
        self._within = outside
        return Subtree(**self._common(place, at, [child]), prefix=prefix, params=params), ANYTHING

    def _stand_in(self, place: _Place) -> Node:
        return Condition(**self._common(place, self._count - 1, []), condition=_UNUSABLE, unmet=_unmet(""))

    def _common(self, place: _Place, at: int, children: list[Node], *, looks: bool = False) -> dict[str, Any]:
        return {
            "path": place.path,
            "at": at,
            "end": self._count,
            "children": tuple(children),
            "looks": looks or any(child.looks for child in children),
            "can_yield": any(child.can_yield for child in children),
        }

    def _label(self, node: TreeNode, position: int, place: _Place) -> str:
        return place.names.get(node.path) or str(position)

    # Expressions.

    def _scope(self, place: _Place) -> Scope:
        locals_ = dict.fromkeys(place.params, ANYTHING)
        if not self._complete:  # a step may be missing that was only misspelt: what refers to it is no second problem
            return Scope(self._input, ANYTHING, _Any(place.steps), has_error=True, locals=locals_)
        return Scope(
            self._input, place.before, place.steps, place.has_error, self._vars_known, locals=locals_, watch=self._watch
        )  # fmt: skip

    def _condition(self, text: str, path: Path, place: _Place) -> Expression:
        if path not in self._conditions:
            expression = self._placed.condition(text, self._scope(place), path)
            self._conditions[path] = _UNUSABLE if expression is None else expression
        return self._conditions[path]

    def _template(self, value: Any, path: Path, place: _Place) -> Template:
        if path not in self._templates:
            self._templates[path] = self._placed.template(value, self._scope(place), path)
        return self._templates[path]

    def _vars(self, node: TreeNode, values: dict[str, Any], place: _Place, shape: Shape = ANYTHING) -> Template | None:
        return self._template(values, node.place("vars"), replace(place, before=shape)) if values else None


def _vars_of(spec: TreeSpec, tree: Tree) -> Shape:
    """Every variable that is declared or set anywhere; others do not exist."""
    names = set(spec.vars)
    for root in (tree.root, *(subtree.root for subtree in tree.subtrees.values())):
        for node in root.walk():
            names.update(getattr(node.part, "vars", ()))
    return Shape("map<string, dyn>", dict.fromkeys(sorted(names), ANYTHING), closed=True)


def _unmet(text: str) -> Result:
    return Result(FAILED, fault=StepFault("condition", f"`{text}` does not hold."))


def _any_of(shapes: Iterable[Shape | None]) -> Shape | None:
    """What is known of an output that comes from one of several places."""
    found = list(shapes)
    return found[0] if all(shape == found[0] for shape in found) else ANYTHING
