"""JSONPath (RFC 9535) over the names in scope: `$.input.items[?@.price > 10].id`.

The document is `{input, output, steps, vars, env, workflow, error, …locals}`. A singular query (names and indexes only)
gives the value at its place, and a fault where there is none; any other gives the list of all values it finds.
As a condition a query holds if it finds anything; a singular one that finds true or false says just that.
"""

from typing import Any

from agentflow.contracts.claims import ValueLost, revealed
from agentflow.contracts.step import StepFault
from agentflow.workflow.suggest import did_you_mean
from planners.expressions.bounds import TooCostly, words_of
from planners.expressions.check import Checked
from planners.expressions.engine import DYN
from planners.expressions.expression import Expression
from planners.expressions.faults import Fault
from planners.expressions.jsonpath_query import BadPath, Exhausted, Query, parse_query
from planners.expressions.lexer import Token
from planners.expressions.reading import MISSING, Reader, Wanted, reader
from planners.expressions.scope import RESERVED, Facts, Scope


class PathExpression(Expression):
    language = "jsonpath"

    def __init__(self, text: str, query: Query, readers: tuple[tuple[str, Reader], ...]) -> None:
        super().__init__(text)
        self._query = query
        self._readers = readers

    def value(self, facts: Facts) -> Any:
        found = self._found(facts)
        if isinstance(found, StepFault):
            return found
        if not self._query.is_singular:
            return [value for _, value in found]
        return found[0][1] if found else self._fault("there is nothing at this path")

    def holds(self, facts: Facts) -> bool | StepFault:
        found = self._found(facts)
        if isinstance(found, StepFault):
            return found
        if self._query.is_singular and found and isinstance(found[0][1], bool):
            return found[0][1]
        return bool(found)

    def values_used(self, facts: Facts) -> dict[str, Any]:
        """What was found, each under its normalized path."""
        found = self._found(facts)
        return {} if isinstance(found, StepFault) else dict(found)

    def _found(self, facts: Facts) -> list[tuple[str, Any]] | StepFault:
        document = {}
        for name, read in self._readers:
            value = read(facts)
            if value is not MISSING:
                document[name] = value
        try:
            return [(path, revealed(value)) for path, value in self._query.find(document)]
        except ValueLost as lost:
            return self._lost(lost)
        except Exhausted:
            return self._fault("it looks at too many values")
        except RecursionError:
            return self._fault("a value is nested too deeply")


def compile_path(text: str, scope: Scope) -> tuple[PathExpression | None, Checked]:
    words: tuple[Token, ...] = ()
    try:
        words = words_of(text)
        query = parse_query(text)
    except (BadPath, TooCostly) as bad:
        return None, Checked(words, (Fault(bad.message, bad.hint, bad.offset),))
    faults = _unknown_names(query, scope)
    if faults:
        return None, Checked(words, faults)
    readers = tuple((name, reader(name, wanted, scope.locals)) for name, wanted in _wanted(query, scope).items())
    return PathExpression(text, query, readers), Checked(words, (), DYN)


def _names(scope: Scope) -> list[str]:
    return [*scope.locals, *(name for name in RESERVED if name != "error" or scope.has_error)]


def _wanted(query: Query, scope: Scope) -> dict[str, Wanted]:
    """The parts of the document that a query can reach, as far as its first names tell."""
    if not query.names or query.reads_root:
        return dict.fromkeys(_names(scope))
    root = query.names[0][0]
    return {root: {query.names[1][0]: None} if root == "steps" and len(query.names) > 1 else None}


def _unknown_names(query: Query, scope: Scope) -> tuple[Fault, ...]:
    if not query.names:
        return ()
    (root, start), *rest = query.names
    if root not in _names(scope):
        is_field = scope.output is not None and (root in scope.output.fields or not scope.output.closed)
        if root == "error":
            hint = "Use it where on_error leads; a field of that name is `$.output.error`."
        elif root in scope.input.fields:
            hint = f"Did you mean `$.input.{root}`?"
        elif is_field:
            hint = f"A field of the previous output is `$.output.{root}`."
        else:
            hint = did_you_mean(root, _names(scope), kind="names")
        return (Fault(f"There is no `{root}` here.", hint, start),)
    shape, where = scope.root(root), root
    for name, offset in rest:
        if shape is None:
            return ()
        if name not in shape.fields:
            if not shape.closed:
                return ()
            what = "There is no step" if where == "steps" else f"`{where}` has no field"
            hint = did_you_mean(name, shape.fields, kind="steps" if where == "steps" else "fields")
            return (Fault(f"{what} `{name}`.", hint, offset),)
        shape, where = shape.fields[name], f"{where}.{name}"
    return ()
