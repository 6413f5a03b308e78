"""`spec.tree` and `spec.subtrees` to a `Tree`, with every fault of shape in a sentence and in its place.

A node that is wrong is left out and what is below it still read, so one slip hides no other.
"""

from typing import Any, TypeVar

from pydantic import ValidationError

from agentflow import limits
from agentflow.errors import Problem
from agentflow.workflow.load import LoadedWorkflow, kind_of, problem_of
from agentflow.workflow.model import Name, Part, TreeSpec
from agentflow.workflow.source_map import Document, Path, path_text
from agentflow.workflow.suggest import did_you_mean
from agentflow.workflow.tree import KINDS, Branch, Kind, Subtree, SubtreePart, Tree, TreeNode

_P = TypeVar("_P", bound=Part)
_SPEC: Path = ("spec",)


def read_tree(loaded: LoadedWorkflow, spec: TreeSpec) -> tuple[Tree | None, list[Problem]]:
    """The tree, and the problems of its shape. Beside problems the tree lacks what was wrong; None: all of it."""
    reader = _Reader(loaded.document)
    root = reader.node(spec.tree, (*_SPEC, "tree"))
    subtrees = reader.subtrees(spec.subtrees, (*_SPEC, "subtrees"))
    return (None if root is None else Tree(root, subtrees)), reader.problems


class _Reader:
    def __init__(self, document: Document) -> None:
        self.problems: list[Problem] = []
        self._document = document

    def subtrees(self, value: Any, path: Path) -> dict[str, Subtree]:
        if not isinstance(value, dict):
            self._report(
                path,
                f"`{path_text(path)}` must be a mapping of names to trees, not {kind_of(value)}.",
                "Write `name: {tree: …}`.",
            )
            return {}
        found = {}
        for name, written in value.items():
            place = (*path, name)
            self._name(name, place)
            part = self._part(SubtreePart, written, place)
            root = self._node_at("tree", written, place)
            if part is not None and root is not None:
                found[name] = Subtree(tuple(part.params), root)
        return found

    def node(self, value: Any, path: Path) -> TreeNode | None:
        if len(self.problems) >= limits.PROBLEMS_SHOWN_MAX:
            return None  # nobody reads on, and a hostile definition should not cost more
        if not isinstance(value, dict) or not value:
            said = "is empty" if value is None or value == {} else f"must be a node, not {kind_of(value)}"
            self._report(path, f"`{path_text(path)}` {said}.", "Write a mapping with one kind, such as `action: {…}`.")
            return None
        known = [key for key in value if key in KINDS]
        for key in value:
            if key not in KINDS:
                hint = did_you_mean(key, KINDS, kind="kinds")
                if known:
                    hint = f"Options stand under the kind: `{known[0]}: {{{key}: …}}`."
                self._report((*path, key), f"`{key}` is not a kind of node.", hint, key=True)
        for extra in known[1:]:
            message = f"A node has one kind; here are `{known[0]}` and `{extra}`."
            self._report((*path, extra), message, "Put each in a node of its own.", key=True)
        return self._of_kind(known[0], value[known[0]], (*path, known[0])) if known else None

    def _node_at(self, key: str, value: Any, path: Path) -> TreeNode | None:
        """The node under a key. Where the key is missing, that has been told already."""
        return self.node(value[key], (*path, key)) if isinstance(value, dict) and key in value else None

    def _of_kind(self, name: str, value: Any, path: Path) -> TreeNode | None:
        kind = KINDS[name]
        short = _is_short(kind, value)
        part = self._part(
            kind.part, {str(kind.short): value} if short else value, path, short=kind.short if short else None
        )
        options: dict[str, Any] = {str(kind.short): value} if short else value if isinstance(value, dict) else {}
        place = path if short else (*path, str(kind.children))
        children, branches = self._below(name, options[kind.children], place) if kind.children in options else ((), ())
        if part is None or (kind.children is not None and not children):
            return None
        return TreeNode(name, part, path, short, children, branches)

    def _below(
        self, name: str, value: Any, path: Path
    ) -> tuple[tuple[TreeNode, ...], tuple[tuple[Path, str | None], ...]]:
        """The children that stand at `path` as far as they could be read, and the branches they hang from."""
        if KINDS[name].children == "do":
            child = self.node(value, path)
            return ((), ()) if child is None else ((child,), ())
        if not isinstance(value, list):
            return (), ()
        if name == "conditional_selector":
            return self._branches(value, path)
        children = [self.node(item, (*path, at)) for at, item in enumerate(value)]
        return tuple(child for child in children if child is not None), ()

    def _branches(
        self, value: list[Any], path: Path
    ) -> tuple[tuple[TreeNode, ...], tuple[tuple[Path, str | None], ...]]:
        children, branches = [], []
        for at, item in enumerate(value):
            place = (*path, at)
            part = self._part(Branch, item, place)
            child = self._node_at("do", item, place)
            if part is not None and child is not None:
                children.append(child)
                branches.append((place, part.when))
        return tuple(children), tuple(branches)

    def _part(self, model: type[_P], value: Any, path: Path, short: str | None = None) -> _P | None:
        try:
            return model.model_validate({} if value is None else value)
        except ValidationError as error:
            faults = error.errors(include_url=False)
        for fault in faults:
            loc = tuple(part for part in fault["loc"] if part != "[key]")
            place = (*path, *(loc[1:] if short is not None and loc[:1] == (short,) else loc))
            self.problems.append(problem_of(self._document, fault, place, lambda _: _keys_of(model)))
        return None

    def _name(self, name: str, path: Path) -> None:
        try:
            _Named(name=name)
        except ValidationError as error:
            fault = error.errors(include_url=False)[0]
            self._report(path, fault["ctx"]["message"], fault["ctx"]["hint"], key=True)

    def _report(self, path: Path, message: str, hint: str, *, key: bool = False) -> None:
        place = self._document.key_position(path) if key else self._document.position(path)
        self.problems.append(Problem(message, hint, *place, path_text(path)))


class _Named(Part):
    name: Name


def _is_short(kind: Kind, value: Any) -> bool:
    if kind.short is None:
        return False
    if kind.short == "do":
        return not (isinstance(value, dict) and "do" in value)
    if kind.short == "vars":
        return not (isinstance(value, dict) and set(value) <= {"vars", "name"} and isinstance(value.get("vars"), dict))
    return value is not None and not isinstance(value, dict)


def _keys_of(model: type[Part]) -> list[str]:
    return [field.alias or name for name, field in model.model_fields.items()]
