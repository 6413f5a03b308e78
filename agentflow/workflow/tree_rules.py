"""The rules of a behaviour tree, one function each: all faults at once, each in its place.

Works on a tree that `tree_load` could read; says nothing about conditions and templates, which are the planner's.
"""

import re
from collections import Counter
from collections.abc import Iterator
from itertools import islice

from agentflow import limits
from agentflow.errors import Problem
from agentflow.workflow.source_map import Document, Path, path_text
from agentflow.workflow.suggest import closest, did_you_mean
from agentflow.workflow.tree import Action, Composite, Parallel, Subtree, SubtreeUse, Tree, TreeNode, Wait

_SUBTREES: Path = ("spec", "subtrees")
_ALWAYS_SUCCEED = frozenset({"force_success", "wait"})
_DEPEND_ON_OTHERS = frozenset({"signal", "human", "subworkflow"})
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_]", re.ASCII)


def tree_problems(document: Document, tree: Tree, *, timed: bool, complete: bool = True) -> list[Problem]:
    """Every fault of the tree. When it lost parts on the way (`complete=False`), only the faults that a missing
    part cannot have caused. `timed`: the workflow itself has a timeout."""
    judge = _Judge(document, tree)
    rules = [
        judge.agents_and_tools(),
        judge.names_twice(),
        judge.never_reached(),
        judge.delays_that_shrink(),
        judge.waits_without_an_end(),
        judge.circles(),
    ]
    if complete:
        rules += [] if timed else [judge.waits_for_ever()]
        rules += [
            judge.thresholds(),
            judge.unknown_subtrees(),
            judge.parameters(),
            judge.unused_subtrees(),
            judge.too_many_nodes(),
        ]
    return [problem for rule in rules for problem in islice(rule, limits.PROBLEMS_SHOWN_MAX)]


def step_names(root: TreeNode) -> dict[Path, str]:
    """The name of each node that has one. An action without is called after its agent or tool, a subtree after
    the one it uses; a number is added where that is taken."""
    names = {node.path: node.part.name for node in root.walk() if node.part.name is not None}
    taken = set(names.values())
    for node in root.walk():
        wanted = _called_after(node)
        if wanted is None or node.path in names:
            continue
        name, count = wanted, 1
        while name in taken:
            count += 1
            name = f"{wanted}_{count}"
        names[node.path] = name
        taken.add(name)
    return names


def _called_after(node: TreeNode) -> str | None:
    match node.part:
        case Action():
            return _NOT_IN_A_NAME.sub("_", node.part.agent or node.part.tool or "action")
        case SubtreeUse():
            return node.part.use
    return None


class _Judge:
    def __init__(self, document: Document, tree: Tree) -> None:
        self._document = document
        self._tree = tree
        self._roots = [tree.root, *(subtree.root for subtree in tree.subtrees.values())]
        self._nodes = [node for root in self._roots for node in root.walk()]
        self._uses = {
            name: [node for node in subtree.root.walk() if isinstance(node.part, SubtreeUse)]
            for name, subtree in tree.subtrees.items()
        }

    def agents_and_tools(self) -> Iterator[Problem]:
        for node in self._nodes:
            if not isinstance(node.part, Action):
                continue
            if node.part.agent is not None and node.part.tool is not None:
                yield self._at_key((*node.path, "tool"), "An action has both an agent and a tool.", "Keep one of them.")
            if node.part.agent is None and node.part.tool is None:
                hint = "Name the agent or the tool that does the work."
                yield self._at_key(node.path, "An action has neither an agent nor a tool.", hint)

    def names_twice(self) -> Iterator[Problem]:
        for root in self._roots:
            seen: set[str] = set()
            for node in root.walk():
                name = node.part.name
                if name is not None and name in seen:
                    hint = "Names are unique within a tree, so that `steps.<name>` means one step."
                    yield self._at_value((*node.path, "name"), f"There is another node named `{name}`.", hint)
                seen.add(name or "")

    def thresholds(self) -> Iterator[Problem]:
        for node in self._nodes:
            if not isinstance(node.part, Parallel):
                continue
            count = len(node.children)
            for key in ("success", "failure"):
                wanted = getattr(node.part, key)
                if isinstance(wanted, int) and wanted > count:
                    message = f"`{key}` is {wanted}, but the parallel has {_counted(count)}."
                    yield self._at_value((*node.path, key), message, "Lower it, or add children.")

    def never_reached(self) -> Iterator[Problem]:
        for node in self._nodes:
            for position, child in enumerate(node.children[:-1]):
                if reason := _why_last(node, position, child):
                    path = node.branches[position][0] if node.branches else child.path
                    at = self._at_value if node.branches else self._at_key
                    yield at(path, f"What comes after this can never be reached: {reason}.", "Make it the last.")
                    break

    def delays_that_shrink(self) -> Iterator[Problem]:
        for node in self._nodes:
            retry = node.part.retry if isinstance(node.part, Action) else None
            if retry is not None and retry.max is not None and retry.max < retry.initial:
                path = (*node.path, "retry", "max")
                yield self._at_value(
                    path, "The longest delay is shorter than the first.", "Raise max or lower initial."
                )

    def waits_without_an_end(self) -> Iterator[Problem]:
        for node in self._nodes:
            if isinstance(node.part, Wait) and (node.part.for_ is None) == (node.part.until is None):
                yield self._at_key(node.path, "A wait has one of `for` and `until`.", "Write `wait: 30s`, for example.")

    def waits_for_ever(self) -> Iterator[Problem]:
        """A subtree is looked at where it is used: a timeout around every use is enough."""
        rest, seen = [self._tree.root], set[str]()
        while rest:
            node = rest.pop()
            if node.kind in _DEPEND_ON_OTHERS:
                hint = "Put it into a `timeout`, or give the workflow one."
                yield self._at_key(node.path, f"This `{node.kind}` may wait for ever.", hint)
            if node.kind == "timeout":
                continue
            rest.extend(reversed(node.children))
            use = node.part.use if isinstance(node.part, SubtreeUse) else ""
            if use in self._tree.subtrees and use not in seen:
                seen.add(use)
                rest.append(self._tree.subtrees[use].root)

    def circles(self) -> Iterator[Problem]:
        told: set[str] = set()
        for name in self._tree.subtrees:
            circle = self._circle(name)
            if circle and not told & set(circle):
                told |= set(circle)
                way = " → ".join(f"`{step}`" for step in (*circle, circle[0]))
                message = f"Subtree `{name}` contains itself: {way}."
                yield self._at_key((*_SUBTREES, name), message, "Repeat with `repeat`, which has a bound.")

    def unknown_subtrees(self) -> Iterator[Problem]:
        for node in self._nodes:
            if isinstance(node.part, SubtreeUse) and node.part.use not in self._tree.subtrees:
                hint = did_you_mean(node.part.use, self._tree.subtrees, kind="subtrees")
                yield self._at_value(node.place("use"), f"There is no subtree `{node.part.use}`.", hint)

    def parameters(self) -> Iterator[Problem]:
        for node in self._nodes:
            subtree = self._subtree_of(node)
            if subtree is None or not isinstance(node.part, SubtreeUse):
                continue
            given, name = node.part.with_, node.part.use
            for missing in [param for param in subtree.params if param not in given]:
                hint = f"Write `subtree: {{use: {name}, with: {{{missing}: …}}}}`."
                yield self._at_key(node.path, f"Subtree `{name}` needs `{missing}`.", hint)
            for extra in [param for param in given if param not in subtree.params]:
                hint = did_you_mean(extra, subtree.params, kind="parameters")
                message = f"Subtree `{name}` has no parameter `{extra}`."
                yield self._at_key((*node.path, "with", extra), message, hint)

    def unused_subtrees(self) -> Iterator[Problem]:
        # A name that is misspelt is judged as if it were spelt right, so one slip gives one problem.
        used = {
            closest(node.part.use, self._tree.subtrees) for node in self._nodes if isinstance(node.part, SubtreeUse)
        }
        for name in self._tree.subtrees:
            if name not in used:
                hint = f"Use it with `subtree: {name}`, or remove it."
                yield self._at_key((*_SUBTREES, name), f"Subtree `{name}` is never used.", hint)

    def too_many_nodes(self) -> Iterator[Problem]:
        if any(self._circle(name) for name in self._tree.subtrees):
            return
        sizes: dict[str, int] = {}
        count = self._size(self._tree.root, sizes)
        if count > limits.TREE_NODES_MAX:
            message = f"The tree has {count} nodes with its subtrees written out; {limits.TREE_NODES_MAX} are allowed."
            yield self._at_key(("spec", "tree"), message, "Split the workflow.")

    def _size(self, root: TreeNode, sizes: dict[str, int]) -> int:
        uses: Counter[str] = Counter()
        count = 0
        for node in root.walk():
            count += 1
            if isinstance(node.part, SubtreeUse):
                uses[node.part.use] += 1
        for name, times in uses.items():
            subtree = self._tree.subtrees.get(name)
            if subtree is not None and name not in sizes:
                sizes[name] = self._size(subtree.root, sizes)
            count += times * sizes.get(name, 0)
        return count

    def _circle(self, name: str) -> tuple[str, ...]:
        """The way from a subtree back to itself, if there is one."""
        rest: list[tuple[str, ...]] = [(name,)]
        seen: set[str] = set()
        while rest:
            way = rest.pop()
            for node in self._uses.get(way[-1], ()):
                use = node.part.use if isinstance(node.part, SubtreeUse) else ""
                if use == name:
                    return way
                if use not in seen:
                    seen.add(use)
                    rest.append((*way, use))
        return ()

    def _subtree_of(self, node: TreeNode) -> Subtree | None:
        return self._tree.subtrees.get(node.part.use) if isinstance(node.part, SubtreeUse) else None

    def _at_key(self, path: Path, message: str, hint: str) -> Problem:
        return Problem(message, hint, *self._document.key_position(path), path_text(path))

    def _at_value(self, path: Path, message: str, hint: str) -> Problem:
        return Problem(message, hint, *self._document.position(path), path_text(path))


def _why_last(node: TreeNode, position: int, child: TreeNode) -> str | None:
    if node.branches:
        return "it has no `when`" if node.branches[position][1] is None else None
    if not isinstance(node.part, Composite):
        return None
    if node.kind == "selector" and child.kind in _ALWAYS_SUCCEED:
        return f"`{child.kind}` always succeeds"
    return "`force_failure` always fails" if node.kind == "sequence" and child.kind == "force_failure" else None


def _counted(count: int) -> str:
    return "one child" if count == 1 else f"{count} children"
