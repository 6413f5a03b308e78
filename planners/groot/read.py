"""Groot's XML to a definition: ours come back as they were, others as far as their nodes are known here.

A leaf that is not known is an action whose agent has its name; its ports become its input, `{name}` the variable of
that name. Anything else that is not known is refused with its line and column. Files are untrusted: there are no
document types and no entities, and a bound on depth and on nodes.
"""

import re
from typing import Any
from xml.parsers import expat

import msgspec

from agentflow import limits
from agentflow.errors import Problem
from agentflow.workflow.load import InvalidWorkflow
from agentflow.workflow.suggest import did_you_mean
from planners.groot.names import ALIASES, ALL, ALWAYS, BRANCH, BY_TAG, REACTIVE, Known

_DEPTH_MAX = 100
_POINTER = re.compile(r"\{(=|[A-Za-z_][A-Za-z0-9_]*)\}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}", re.ASCII)
_AGENT = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,62}", re.ASCII)
_REACTIVE = {tag: kind for kind, tag in REACTIVE.items()}
_LEAVES = frozenset({"condition", "action", "set", "wait", "signal", "human", "subworkflow", "subtree"})
_MANY = frozenset({"sequence", "selector", "parallel"})


class _Element:
    __slots__ = ("attributes", "children", "place", "tag")

    def __init__(self, tag: str, attributes: dict[str, str], place: tuple[int, int]) -> None:
        self.tag = tag
        self.attributes = attributes
        self.place = place
        self.children: list[_Element] = []


class _Refused(Exception):
    def __init__(self, message: str, hint: str, place: tuple[int, int]) -> None:
        super().__init__(message)
        self.problem = Problem(message, hint, *place)


def definition(text: bytes | str, *, name: str | None = None, version: str | None = None) -> dict[str, Any]:
    """The definition as data. `name` and `version` go before what the file says. Raises `InvalidWorkflow`."""
    try:
        return _Reader(_parsed(text)).definition(name, version)
    except _Refused as refused:
        raise InvalidWorkflow([refused.problem]) from None


def _parsed(text: bytes | str) -> _Element:
    parser = expat.ParserCreate()
    root = _Element("", {}, (1, 1))
    open_: list[_Element] = [root]
    count = 0

    def place() -> tuple[int, int]:
        return parser.CurrentLineNumber, parser.CurrentColumnNumber + 1

    def begun(tag: str, attributes: dict[str, str]) -> None:
        nonlocal count
        count += 1
        if len(open_) > _DEPTH_MAX or count > 4 * limits.TREE_NODES_MAX:
            raise _Refused("The file is too large.", f"A tree has at most {limits.TREE_NODES_MAX} nodes.", place())
        element = _Element(tag, attributes, place())
        open_[-1].children.append(element)
        open_.append(element)

    def doctype(*_: object) -> None:
        raise _Refused("A document type is not read.", "Remove `<!DOCTYPE …>`.", place())

    parser.StartElementHandler = begun
    parser.EndElementHandler = lambda _tag: open_.pop()
    parser.StartDoctypeDeclHandler = doctype
    try:
        parser.Parse(text, True)
    except expat.ExpatError as error:
        said = expat.ErrorString(error.code)
        raise _Refused(
            f"This is not XML: {said}.", "Save it from Groot again.", (error.lineno, error.offset + 1)
        ) from None
    (top,) = root.children
    if top.tag != "root":
        raise _Refused(f"The file begins with `{top.tag}`, not with `root`.", "Export it from Groot 2.", top.place)
    return top


class _Reader:
    def __init__(self, root: _Element) -> None:
        self._root = root
        self._trees = {it.attributes.get("ID", ""): it for it in root.children if it.tag == "BehaviorTree"}
        models = [model for it in root.children if it.tag == "TreeNodesModel" for model in it.children]
        self._categories = {model.attributes.get("ID", ""): model.tag for model in models}
        self._params: dict[str, list[str]] = {}

    def definition(self, name: str | None, version: str | None) -> dict[str, Any]:
        main = self._main()
        metadata = {"name": "imported", "version": "1.0.0", **self._coded(self._root, "_metadata", {})}
        metadata |= {key: value for key, value in (("name", name), ("version", version)) if value is not None}
        for key, tree in self._trees.items():
            self._params[key] = tree.attributes.get("_params", "").split()
        spec: dict[str, Any] = {"planner": "behavior_tree", **self._coded(self._root, "_spec", {})}
        spec["tree"] = self._only_child(self._trees[main])
        subtrees = {key: self._only_child(tree) for key, tree in self._trees.items() if key != main}
        if subtrees:
            spec["subtrees"] = {
                key: {"tree": tree} | ({"params": self._params[key]} if self._params[key] else {})
                for key, tree in subtrees.items()
            }
        return {"apiVersion": "agentflow/v1", "kind": "Workflow", "metadata": metadata, "spec": spec}

    def _main(self) -> str:
        if not self._trees:
            raise _Refused("There is no `BehaviorTree`.", "Export a tree from Groot.", self._root.place)
        named = self._root.attributes.get("main_tree_to_execute", next(iter(self._trees)))
        if named not in self._trees:
            hint = did_you_mean(named, self._trees, kind="trees")
            raise _Refused(f"There is no tree `{named}`.", hint, self._root.place)
        return named

    def _only_child(self, element: _Element) -> dict[str, Any]:
        if len(element.children) != 1:
            message = f"`{element.tag}` has one node below it, not {len(element.children)}."
            raise _Refused(message, "Put several into a Sequence.", element.place)
        return self._node(element.children[0])

    def _node(self, element: _Element) -> dict[str, Any]:
        tag = ALIASES.get(element.tag, element.tag)
        if tag in ALWAYS:
            return {"condition": {"when": ALWAYS[tag]} | self._name(element)}
        reactive = _REACTIVE.get(tag)
        known = BY_TAG.get(tag)
        if known is None and reactive is None:
            return {"action": self._foreign(element)}
        kind = reactive if known is None else known.kind
        assert kind is not None
        options: dict[str, Any] = dict(self._name(element))
        if known is not None:
            options |= self._options(element, known)
        if reactive is not None or element.attributes.get("memory") == "false":
            options["memory"] = False
        return {kind: options | self._below(element, kind)}

    def _below(self, element: _Element, kind: str) -> dict[str, Any]:
        if kind in _LEAVES:
            if element.children:
                raise _Refused(f"`{element.tag}` has no nodes below it.", "Move them beside it.", element.place)
            return {}
        if kind == "conditional_selector":
            return {"branches": [self._branch(child) for child in element.children]}
        if kind in _MANY:
            found: dict[str, Any] = {"children": [self._node(child) for child in element.children]}
            return found | (self._thresholds(element) if kind == "parallel" else {})
        return {"do": self._only_child(element)}

    def _branch(self, element: _Element) -> dict[str, Any]:
        if element.tag != BRANCH:
            hint = f"Put each child into a `{BRANCH}` with its `when`."
            raise _Refused(f"`{element.tag}` is not a `{BRANCH}`.", hint, element.place)
        when = {"when": element.attributes["when"]} if "when" in element.attributes else {}
        return when | {"do": self._only_child(element)}

    def _thresholds(self, element: _Element) -> dict[str, Any]:
        given = element.attributes
        every = given.get("success_count", ALL) == ALL
        return {
            "success": "all" if every else self._whole(element, "success_count"),
            "failure": self._whole(element, "failure_count") if "failure_count" in given else 1,  # as theirs is
        }

    def _options(self, element: _Element, known: Known) -> dict[str, Any]:
        given = element.attributes
        found: dict[str, Any] = {option: given[at] for option, at in known.texts.items() if at in given}
        found |= {option: self._whole(element, at) for option, at in known.whole.items() if at in given}
        found |= {option: f"{self._whole(element, at)}ms" for option, at in known.times.items() if at in given}
        found |= {option: self._coded(element, at, None) for option, at in known.coded.items() if at in given}
        if known.kind == "subtree":
            self._ports(element, found)
        return found

    def _ports(self, element: _Element, found: dict[str, Any]) -> None:
        """Parameters as Groot writes them: one attribute each."""
        ports = {key: _value(text) for key, text in element.attributes.items() if key not in ("ID", "name", "with")}
        ports = {key: value for key, value in ports.items() if not key.startswith("_")}
        if ports:
            found["with"] = {**found.get("with", {}), **ports}
        known = self._params.setdefault(element.attributes.get("ID", ""), [])
        known += [key for key in ports if key not in known]

    def _foreign(self, element: _Element) -> dict[str, Any]:
        called = element.attributes.get("ID", element.tag) if element.tag in ("Action", "Condition") else element.tag
        category = element.tag if element.tag in ("Action", "Condition") else self._categories.get(called, "Action")
        if element.children or category != "Action" or not _AGENT.fullmatch(called):
            hint = "Known are " + ", ".join((*BY_TAG, *REACTIVE.values(), *ALWAYS)) + ", and actions."
            raise _Refused(f"There is no node `{called}` here.", hint, element.place)
        ports = {key: _value(text) for key, text in element.attributes.items() if key not in ("ID", "name")}
        given = {key: value for key, value in ports.items() if not key.startswith("_")}
        return {"agent": called, **self._name(element), **({"input": given} if given else {})}

    def _name(self, element: _Element) -> dict[str, str]:
        name = element.attributes.get("name", "")
        return {"name": name} if _NAME.fullmatch(name) else {}

    def _whole(self, element: _Element, attribute: str) -> int:
        text = element.attributes[attribute]
        if not (text.isascii() and text.isdigit()):
            raise _Refused(f"`{attribute}` is `{text}`, and not a number.", "Write digits.", element.place)
        return int(text)

    def _coded(self, element: _Element, attribute: str, default: Any) -> Any:
        text = element.attributes.get(attribute)
        if text is None:
            return default
        try:
            return msgspec.json.decode(text)
        except msgspec.DecodeError:
            raise _Refused(f"`{attribute}` is not JSON.", 'For example {"key": "value"}.', element.place) from None


def _value(text: str) -> str:
    """`{door}` is the entry `door` of the blackboard, and so our variable."""
    return _POINTER.sub(lambda found: f"${{vars.{found[1]}}}", text)
