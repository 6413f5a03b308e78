"""The one door to the CEL engine (Google's C++ runtime): compile and evaluate, errors as data.

Types are named as the engine writes them: `int`, `string`, `list<int>`, `map<string, dyn>`, `dyn`. What it says
is passed on as it is; `check` and `evaluate` put it into sentences.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec
from cel_expr_python import cel  # type: ignore[import-untyped]

DYN = "dyn"
OBJECT = "map<string, dyn>"

_ERROR = re.compile(r"ERROR: <input>:(-?\d+):(-?\d+): (.*?)(?=\n \| |\nERROR: |\s*\[[A-Z_]+\]\s*$)", re.DOTALL)
# Only declared, to be checked: the text that is evaluated says `size`.
_LEN = cel.FunctionDecl(
    "len",
    [
        cel.Overload(f"len_{at}", cel.Type.INT, [cel.Type(kind)], False)
        for at, kind in enumerate(("list<dyn>", "map<dyn, dyn>", "string", "bytes"))
    ],
)


class Refusal(msgspec.Struct, frozen=True):
    """One reason why a text was not compiled. Line and column count from 1; 0 is nowhere in particular."""

    message: str
    line: int
    column: int


class Failure(msgspec.Struct, frozen=True):
    """Why an evaluation gave no value."""

    reason: str


class Compiled:
    def __init__(self, expression: Any) -> None:
        self.type: str = expression.return_type().name().lower()
        self._eval = expression.eval

    def evaluate(self, data: Mapping[str, Any]) -> Any:
        """Plain data, or a `Failure`. Times, durations, bytes and types come back as Python's."""
        try:
            result = self._eval(data=data)
            kind = result.type()
            if kind == _BOOL:
                return result.value()
            if kind == _FAILED:
                return Failure(str(result.value()))
            return _plain(result)
        except (RuntimeError, ValueError, TypeError) as error:  # a spent budget, or a value the engine cannot hold
            return Failure(str(error))
        except RecursionError:
            return Failure("the result is nested too deeply")


_BOOL, _FAILED, _NULL = cel.Type.BOOL, cel.Type.ERROR, cel.Type.NULL


def _plain(value: Any) -> Any:
    """The engine's value as Python's.

    Its own `plain_value()` must not be used: version 0.1.3 gives back a null without counting the reference to
    `None`, and before Python 3.12 enough of those end the process. A test holds us to it.
    """
    if value.type() == _NULL:
        return None
    held = value.value()
    if isinstance(held, list):
        return [_plain(item) for item in held]
    if isinstance(held, dict):
        return {key: _plain(item) for key, item in held.items()}
    return held


@lru_cache(maxsize=256)
def _environment(variables: tuple[tuple[str, str], ...]) -> Any:
    """Kept, because the first use of an environment costs twenty times what the next ones do (400 µs to 25)."""
    return cel.NewEnv(variables={name: cel.Type(kind) for name, kind in variables}, functions=[_LEN])


def compile_text(text: str, variables: Mapping[str, str]) -> Compiled | list[Refusal]:
    """Parse and type-check against the declared variables, whose names may be dotted (`input.severity`)."""
    try:
        return Compiled(_environment(tuple(sorted(variables.items()))).compile(text))
    except RuntimeError as error:
        found = [
            Refusal(message, max(0, int(line)), max(0, int(column)))
            for line, column, message in _ERROR.findall(str(error))
        ]
        return found or [Refusal(str(error), 0, 0)]
