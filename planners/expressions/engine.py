"""What we ask of a CEL engine, in words that no engine owns. `engines` chooses one of those that answer.

An engine compiles a text that `engines.check_text` has passed, and evaluates it over plain data. It raises
nothing: what it will not compile is a list of `Refusal`, what it cannot evaluate a `Failure`, both as data and in the
same words whichever engine speaks. Types are named `int`, `string`, `list<int>`, `map<string, dyn>`, `dyn`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

import msgspec

DYN = "dyn"
OBJECT = "map<string, dyn>"
ITERATIONS_MAX = 10_000  # in one evaluation: Google's own bound, kept by the other engine too

RefusalKind = Literal["name", "function", "overload", "unexpected", "unreadable", "incomplete", "nested", "other"]


class Refusal(msgspec.Struct, frozen=True):
    """One reason why a text was not compiled, at an offset into it.

    `subject` is the name, function, operator or piece of text that is meant (for `other`, a whole sentence);
    `operands` are the types an operator was given.
    """

    kind: RefusalKind
    subject: str
    offset: int
    operands: str = ""


class Failure(msgspec.Struct, frozen=True):
    """Why an evaluation gave no value: half a sentence, made by one of the functions below."""

    reason: str


class TypeName(msgspec.Struct, frozen=True):
    """A type as a value, such as `type(1)` gives."""

    name: str


class Compiled(Protocol):
    @property
    def type(self) -> str: ...

    def evaluate(self, data: Mapping[str, Any]) -> Any:
        """Plain data, or a `Failure`. Keys of objects come back sorted, so that a result has one way to be written."""
        ...


class Engine(Protocol):
    @property
    def NAME(self) -> str: ...  # noqa: N802 (an engine is a module)

    def __hash__(self) -> int: ...

    def compile_text(self, text: str, variables: Mapping[str, str]) -> Compiled | list[Refusal]:
        """Parse and type-check against the declared variables, whose names may be dotted (`input.severity`)."""
        ...


def no_field(name: str) -> str:
    return f"there is no field `{name}`"


def no_name(name: str) -> str:
    return f"there is no `{name}`"


def no_overload(operator: str, operands: Sequence[str]) -> str:
    return overload(operator, "(" + ", ".join(operands) + ")")


NO_FIELDS = "a field is read from something that has no fields"
NOT_BOOLEAN = "a condition inside it is neither true nor false"
NOT_SEARCHED = "`in` looks into lists and objects only"
TOO_MANY_ITERATIONS = f"it takes more than {ITERATIONS_MAX:,} iterations"
OVERFLOW = "a number is out of range"
NOT_CONVERTED = "a text cannot be converted"


def overload(operator: str, operands: str) -> str:
    """`_>_` and `(int, string)` as `` `>` does not take (int, string)``."""
    return f"{symbol(operator)} does not take {operands}"


def symbol(operator: str) -> str:
    name = operator.removeprefix("@").replace("_[_]", "[ ]").replace("_?_:_", "?:").strip("_")
    return f"`{name}`"
