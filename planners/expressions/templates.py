"""`${…}` in the input of a step: compiled once, rendered for each step.

An expression that is the whole text keeps its type; inside other text it becomes part of a string (numbers,
booleans, lists and objects in JSON notation, text as it is). `$${` stands for a plain `${`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from agentflow import limits
from agentflow.contracts.step import StepFault
from agentflow.workflow.source_map import Path
from planners.expressions.engine import Engine
from planners.expressions.engines import ENGINE
from planners.expressions.evaluate import compile_expression
from planners.expressions.expression import Expression
from planners.expressions.faults import Fault
from planners.expressions.lexer import tokens
from planners.expressions.scope import Facts, Scope

_NOT_JSON = ("bytes", "duration", "timestamp", "type")


@dataclass(frozen=True)
class PlacedFault:
    """A fault in the text that stands at `path` in the definition."""

    path: Path
    text: str
    fault: Fault


class Template(Protocol):
    def render(self, facts: Facts) -> Any:
        """The input of a step as JSON data, or a `StepFault`."""
        ...


class _Constant(msgspec.Struct, frozen=True):
    value: Any

    def render(self, _facts: Facts) -> Any:
        return self.value


class _Mixed(msgspec.Struct, frozen=True):
    parts: tuple[str | Expression, ...]

    def render(self, facts: Facts) -> Any:
        written = []
        for part in self.parts:
            value = part if isinstance(part, str) else part.looked_into(facts)
            if isinstance(value, StepFault):
                return value
            written.append(value if isinstance(value, str) else msgspec.json.encode(value).decode())
        return "".join(written)


class _Object(msgspec.Struct, frozen=True):
    entries: dict[str, Template]

    def render(self, facts: Facts) -> Any:
        rendered = {}
        for key, template in self.entries.items():
            value = template.render(facts)
            if isinstance(value, StepFault):
                return value
            rendered[key] = value
        return rendered


class _List(msgspec.Struct, frozen=True):
    elements: tuple[Template, ...]

    def render(self, facts: Facts) -> Any:
        rendered = []
        for template in self.elements:
            value = template.render(facts)
            if isinstance(value, StepFault):
                return value
            rendered.append(value)
        return rendered


def compile_template(
    value: Any, scope: Scope, path: Path = (), engine: Engine = ENGINE
) -> tuple[Template, list[PlacedFault]]:
    """The template of a JSON value, and the faults of every expression in it."""
    faults: list[PlacedFault] = []
    return _compile(value, scope, path, faults, engine), faults


def _compile(value: Any, scope: Scope, path: Path, faults: list[PlacedFault], engine: Engine) -> Template:
    if len(faults) >= limits.PROBLEMS_SHOWN_MAX:
        return _Constant(value)  # it will not be rendered, and nobody reads on
    if isinstance(value, str):
        template, found = _compile_text(value, scope, engine)
        faults += [PlacedFault(path, value, fault) for fault in found]
        return template
    if isinstance(value, dict):
        entries = {key: _compile(item, scope, (*path, key), faults, engine) for key, item in value.items()}
        return _Constant(value) if _all_constant(list(entries.values())) else _Object(entries)
    if isinstance(value, list):
        elements = [_compile(item, scope, (*path, at), faults, engine) for at, item in enumerate(value)]
        return _Constant(value) if _all_constant(elements) else _List(tuple(elements))
    return _Constant(value)


def _all_constant(templates: Sequence[Template]) -> bool:
    # `$${` makes a constant that differs from what was written, so such a value is put together again.
    return all(isinstance(template, _Constant) and not isinstance(template, _Escaped) for template in templates)


class _Escaped(_Constant, frozen=True):
    """A constant whose text is not the text that was written."""


def _compile_text(text: str, scope: Scope, engine: Engine) -> tuple[Template, list[Fault]]:
    pieces, faults = _split(text)
    parts: list[str | Expression] = []
    for piece, offset in pieces:
        if offset is None or len(faults) >= limits.PROBLEMS_SHOWN_MAX:
            parts.append(piece)
            continue
        expression, checked = compile_expression(piece, scope, engine)
        faults += [Fault(fault.message, fault.hint, offset + fault.offset) for fault in checked.faults]
        kind = checked.type.partition("<")[0]
        if kind in _NOT_JSON and not checked.faults:
            hint = "Turn it into text with string(…)."
            faults.append(Fault(f"The expression gives a {kind}, which JSON does not have.", hint, offset))
        if expression is not None:
            parts.append(expression)
    if faults or all(isinstance(part, str) for part in parts):
        literal = "".join(part for part in parts if isinstance(part, str))
        return (_Constant(text) if literal == text else _Escaped(literal)), faults
    if len(parts) == 1 and isinstance(parts[0], Expression):
        return parts[0], faults
    return _Mixed(tuple(parts)), faults


def _split(text: str) -> tuple[list[tuple[str, int | None]], list[Fault]]:
    """The pieces of a text: plain ones, and expressions with the offset at which each begins."""
    pieces: list[tuple[str, int | None]] = []
    at = 0
    while (found := text.find("${", at)) >= 0:
        if found > at and text[found - 1] == "$":
            pieces.append((text[at : found - 1] + "${", None))
            at = found + 2
            continue
        if found > at:
            pieces.append((text[at:found], None))
        end = _closing_brace(text, found + 2)
        if end is None:
            hint = "Close it with `}`; write `$${` where you mean the characters themselves."
            return pieces, [Fault("This `${` is never closed.", hint, found)]
        pieces.append((text[found + 2 : end], found + 2))
        at = end + 1
    if at < len(text):
        pieces.append((text[at:], None))
    return pieces, []


def _closing_brace(text: str, start: int) -> int | None:
    """Where the expression that begins at `start` ends; braces of maps and inside of strings do not count."""
    depth = 0
    for word in tokens(text, start):
        if word.kind != "symbol":
            continue
        if word.text == "{":
            depth += 1
        elif word.text == "}":
            if depth == 0:
                return word.start
            depth -= 1
    return None
