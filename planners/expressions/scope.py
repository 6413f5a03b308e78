"""Which names an expression may use at its place in a workflow, and what is known of each.

`input`, `output`, `steps`, `vars`, `env`, `workflow` and (where a failed step leads) `error` are always what they
say. Any other name is a local of its place (the `item` of a map, a parameter of a subtree) or else a field of
the previous step's output. `Facts` is the same at the time of evaluation.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol

import msgspec

from agentflow.contracts.step import StepFault
from planners.expressions.engine import DYN, OBJECT
from planners.expressions.shapes import ANYTHING, Shape, record

TEXT = Shape("string")
_OBJECT = Shape(OBJECT)
_WORKFLOW = record(name=TEXT, version=TEXT)
# Null where the state was reached without an error, so its type is open and only its fields are known.
_ERROR = Shape(DYN, {"code": TEXT, "message": TEXT}, closed=True)
_ENV = Shape("map<string, string>")
# A local may not be named like one of these: planners refuse it where it is declared.
RESERVED = ("input", "output", "steps", "vars", "env", "workflow", "error")
NOTHING: Mapping[str, Any] = MappingProxyType({})


class Named(Protocol):
    """A workflow by name: what `agentflow.execution.events.WorkflowRef` is."""

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> str: ...


class Facts(msgspec.Struct, frozen=True, gc=False):
    """What is true when an expression is evaluated. `output` and `error` are of the step that came before.

    Made anew for each decision, so it only points at what is there: nothing is copied or looked through until an
    expression names it. `msgspec.structs.replace` makes one that differs in a single respect.
    """

    input: Any
    output: Any
    outputs: Mapping[str, Any]
    workflow: Named
    error: StepFault | None = None
    vars: Mapping[str, Any] = NOTHING
    # Values that the deployment allows workflows to see, recorded with the execution; nothing here reads them.
    env: Mapping[str, str] = NOTHING
    # Names of this place alone: `item` and `index` of a map or loop, the parameters of a subtree.
    locals: Mapping[str, Any] = NOTHING


@dataclass(frozen=True)
class Scope:
    input: Shape = ANYTHING
    # None: no step comes before, so there are no names but the reserved ones.
    output: Shape | None = ANYTHING
    steps: Mapping[str, Shape] = field(default_factory=dict)
    has_error: bool = False
    vars: Shape = _OBJECT
    # None: which values the deployment allows is not known here, so any name may be one.
    env: Collection[str] | None = None
    locals: Mapping[str, Shape] = field(default_factory=dict)
    # Told of every evaluation; None but for those who look back at what an execution did.
    watch: Callable[[Any], None] | None = None

    def root(self, name: str) -> Shape | None:
        """What a top-level name is; None where it is unknown here."""
        match name:
            case "input":
                return self.input
            case "output":
                return self.output or ANYTHING
            case "steps":
                return Shape(OBJECT, _Steps(self.steps), closed=True)
            case "vars":
                return self.vars
            case "env":
                return _ENV if self.env is None else record(**dict.fromkeys(self.env, TEXT))
            case "workflow":
                return _WORKFLOW
            case "error":
                return _ERROR if self.has_error else None
        if name in self.locals:
            return self.locals[name]
        if self.output is None:
            return None
        known = self.output.fields.get(name)
        return known if known is not None or self.output.closed else ANYTHING

    def root_names(self) -> list[str]:
        fields = [] if self.output is None else list(self.output.fields)
        return [*self.locals, *(name for name in RESERVED if name != "error" or self.has_error), *fields]


class _Steps(Mapping[str, Shape]):
    """`steps.<name>` is a record with one field, made when asked for: a workflow may have thousands."""

    def __init__(self, outputs: Mapping[str, Shape]) -> None:
        self._outputs = outputs

    def __getitem__(self, name: str) -> Shape:
        return record(output=self._outputs[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._outputs)

    def __len__(self) -> int:
        return len(self._outputs)
