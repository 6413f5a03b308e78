"""Faults of an expression, found before anything runs: syntax, types, unknown names, cost.

One checker does the work for every engine, against variables declared from the schemas (`input.severity: int`).
It is asked more than once: the names it does not know are how fields of the previous output are found.
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from agentflow import limits
from agentflow.workflow.suggest import did_you_mean
from planners.expressions.bodies import refusals_in_bodies
from planners.expressions.bounds import TooCostly, is_macro, refuse_costly, words_of
from planners.expressions.dialect import left_out
from planners.expressions.engine import DYN, Refusal, overload
from planners.expressions.engines import check_text
from planners.expressions.faults import Fault as Fault
from planners.expressions.lexer import MACROS, NamePath, Token, name_paths
from planners.expressions.scope import RESERVED, Scope
from planners.expressions.walks import Walks

_FUNCTIONS = (
    "size", "len", "has", "contains", "startsWith", "endsWith", "matches", "int", "uint", "double", "string",
    "bytes", "bool", "type", "dyn", "duration", "timestamp", *sorted(MACROS),
)  # fmt: skip
_TYPE_NAMES = frozenset({"int", "uint", "double", "bool", "string", "bytes", "list", "map", "null_type", "type"})
_RANGE = re.compile(r"expression of type '(.*)' cannot be the range")
_SELECT = re.compile(r"expression of type '(.*)' cannot be the operand of a select")
_SYNTAX = frozenset({"unexpected", "unreadable", "incomplete", "nested"})
# One pass finds the undeclared names, the second checks with them; a name hidden by a macro's may need a third.
_PASSES_MAX = 4


@dataclass(frozen=True)
class Checked:
    words: tuple[Token, ...]
    faults: tuple[Fault, ...]
    type: str = DYN
    roots: frozenset[str] = field(default_factory=frozenset)  # top-level names that need a value


def check(text: str, scope: Scope) -> Checked:
    try:
        words = words_of(text)
        refuse_costly(words)
    except TooCostly as refused:
        return Checked((), (Fault(refused.message, refused.hint, refused.offset),))
    if not words:
        return Checked(words, (Fault("The expression is empty.", "Write a CEL expression."),))
    # What is left out here may stop an engine's parser in a place of its own; only ours is the same for all.
    unsupported = tuple(left_out(words))
    if unsupported:
        return Checked(words, unsupported)
    return _Checker(text, words, scope).checked()


class _Checker:
    def __init__(self, text: str, words: tuple[Token, ...], scope: Scope) -> None:
        self._text = text
        self._words = words
        self._scope = scope
        self._paths = name_paths(words)
        self._declared: dict[str, str] = {}
        self._faults: list[Fault] = []
        # In the engine's eyes `has(input.x)` has the type of a declared `input.x`; `dyn(…)` is as long and fits.
        self._checkable = _renamed(text, words, "has", "dyn")

    def checked(self) -> Checked:
        macro_names = {
            self._words[at + 1].text for at in range(len(self._words) - 1) if is_macro(self._words, at)
        }  # fmt: skip
        walks = Walks(self._words, self._paths)
        for path in self._paths:
            walked = walks.walked_by(path)
            if walked is not None:
                self._check_item(path, walks)
            else:
                self._declare(path, hidden=path.parts[0] in macro_names)
        kind = self._compile()
        roots = frozenset(name for name in self._declared if "." not in name)
        return Checked(self._words, tuple(sorted(self._faults, key=lambda fault: fault.offset)), kind, roots)

    def _check_item(self, path: NamePath, walks: Walks) -> None:
        """The item of a macro has no type to the engine; that it lacks a field can be said all the same."""
        shape = walks.shape_of_root(path, self._scope)
        for depth in range(1, len(path.parts)):
            if shape is None:
                return
            known, part = shape.fields.get(path.parts[depth]), path.parts[depth]
            if known is None and shape.closed and len(self._faults) < limits.PROBLEMS_SHOWN_MAX:
                hint = did_you_mean(part, shape.fields, kind="fields")
                where = ".".join(path.parts[:depth])
                self._faults.append(Fault(f"`{where}` has no field `{part}`.", hint, path.starts[depth]))
            shape = known

    def _declare(self, path: NamePath, *, hidden: bool) -> None:
        """Declare what is known along a path; say so where a closed shape has no such field."""
        root = path.parts[0]
        known = root in RESERVED or root in self._scope.locals or root in getattr(self._scope.output, "fields", ())
        shape = self._scope.root(root)
        if not known and (shape is None or hidden or root in _TYPE_NAMES):
            return  # the engine knows better whether it is a name at all
        for depth in range(1, len(path.parts) + 1):
            if shape is None:
                return
            self._declared[".".join(path.parts[:depth])] = shape.type
            if depth == len(path.parts):
                return
            part, container = path.parts[depth], shape
            shape = container.fields.get(part)
            if shape is None and container.closed and not hidden and len(self._faults) < limits.PROBLEMS_SHOWN_MAX:
                where = ".".join(path.parts[:depth])
                hint = did_you_mean(part, container.fields, kind="steps" if where == "steps" else "fields")
                what = "There is no step" if where == "steps" else f"`{where}` has no field"
                self._faults.append(Fault(f"{what} `{part}`.", hint, path.starts[depth]))

    def _compile(self) -> str:
        for _ in range(_PASSES_MAX):
            result = check_text(self._checkable, self._declared)
            if not isinstance(result, list):
                self._faults += self._in_bodies(())
                return result
            if not self._declare_found(result):
                self._faults += faults_of(result)
                if not any(refusal.kind in _SYNTAX for refusal in result):
                    self._faults += self._in_bodies([refusal.offset for refusal in result])
                break
        return DYN

    def _in_bodies(self, told: Collection[int]) -> list[Fault]:
        """Faults inside of macros that only show where the fields of items have types."""
        refusals = refusals_in_bodies(self._checkable, self._words, self._paths, self._scope, self._declared)
        seen, fresh = set(told), []
        for refusal in refusals:
            if refusal.offset not in seen:
                seen.add(refusal.offset)
                fresh.append(refusal)
        return faults_of(fresh)

    def _declare_found(self, refusals: Sequence[Refusal]) -> bool:
        """Declare the names that the checker missed; False when there was none."""
        found = False
        for refusal in refusals:
            root = refusal.subject
            if refusal.kind != "name" or root in self._declared:
                continue
            shape = self._scope.root(root)
            if shape is None:
                self._faults.append(self._unknown_name(root, refusal.offset))
            self._declared[root] = DYN if shape is None else shape.type
            found = True
        return found

    def _unknown_name(self, root: str, start: int) -> Fault:
        if root == "error":
            hint = "Use it in the input of a state that on_error leads to; a field of that name is `output.error`."
            return Fault("There is no `error` here.", hint, start)
        if self._scope.output is None:
            inputs = self._scope.input.fields
            hint = f"Did you mean `input.{root}`?" if root in inputs else "The first state sees `input` and `workflow`."
            return Fault(f"There is no `{root}` here: no step comes before.", hint, start)
        hint = did_you_mean(root, self._scope.root_names(), kind="names")
        return Fault(f"The previous step's output has no field `{root}`.", hint, start)


def faults_of(refusals: Sequence[Refusal]) -> list[Fault]:
    if any(refusal.kind in _SYNTAX for refusal in refusals):
        refusals = refusals[:1]  # the others follow from the first
    return [Fault(*_sentence(refusal), refusal.offset) for refusal in refusals]


def _sentence(refusal: Refusal) -> tuple[str, str]:
    """What the engine said, in words for the person who wrote the expression."""
    subject = refusal.subject
    match refusal.kind:
        case "function":
            return f"There is no function `{subject}`.", did_you_mean(subject, _FUNCTIONS, kind="functions")
        case "overload":
            hint = "Check the types, or convert with string(), int() or double()."
            if "type(" in refusal.operands:
                hint = "A field that is named like a type (`type`, `string`, `list` …) is written `output.type`."
            return f"{overload(subject, refusal.operands)}.", hint
        case "incomplete":
            return "The expression ends too early.", "Complete it."
        case "unexpected":
            return f"`{subject}` is not expected here.", "Operators are && || ! == != < <= > >= + - * / % in."
        case "unreadable":
            hint = "Use `==` to compare." if subject.startswith("=") else "Check quotes and operators."
            return f"`{subject}` cannot be read.", hint
        case "nested":
            return "The expression is nested too deeply.", "At most 32 levels are allowed; split it."
    return _other(subject)


def _other(subject: str) -> tuple[str, str]:
    if found := _RANGE.match(subject):
        return f"A macro walks a list or an object, not a value of type {found[1]}.", "Walk a list: `items.all(…)`."
    if found := _SELECT.match(subject):
        return f"A value of type {found[1]} has no fields.", "Select from an object."
    if "must be a field selection" in subject:
        return "`has` asks for a field: `has(output.name)`.", "Name the field with its object."
    if subject.endswith("cannot be a key"):
        return f"{subject.capitalize()}.", "Keys are text, whole numbers, true and false."
    if "must be a simple identifier" in subject:
        return "The first argument of a macro is a name for the item.", "Write `items.all(item, …)`."
    return f"The expression is not valid: {subject}.", "See the CEL language definition."


def _renamed(text: str, words: Sequence[Token], name: str, other: str) -> str:
    """The text with each call of `name` turned into one of `other`."""
    result, done = [], 0
    for word, after in pairwise(words):
        if word.kind == "name" and word.text == name and after.text == "(":
            result += [text[done : word.start], other]
            done = word.end
    return "".join([*result, text[done:]])


def runnable(text: str, words: Sequence[Token]) -> str:
    """The text as the engine evaluates it: `len` is another word for its `size`."""
    return _renamed(text, words, "len", "size")
