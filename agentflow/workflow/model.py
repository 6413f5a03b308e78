"""What a definition may contain, as pydantic models: the edge where people type.

Shapes and single values only; what joins them (does that state exist?) is in `validate`, and what an
expression means is the planner's. Unknown keys are refused: a key that is silently ignored is a lie.
"""

import re
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag
from pydantic_core import PydanticCustomError
from semantic_version import NpmSpec

from agentflow import limits
from agentflow.errors import Bug
from agentflow.workflow.durations import format_duration, parse_duration

_SEMVER = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)"
    r"(-(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(\.(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*)?"
    r"(\+[0-9a-zA-Z-]+(\.[0-9a-zA-Z-]+)*)?",
    re.ASCII,
)


def refusal(message: str, hint: str) -> PydanticCustomError:
    """An error whose sentence is ours. `load` adds the place."""
    return PydanticCustomError("definition", "{message}", {"message": message, "hint": hint})


def _matching(pattern: str, what: str, hint: str) -> AfterValidator:
    compiled = re.compile(pattern, re.ASCII)

    def check(text: str) -> str:
        if not compiled.fullmatch(text):
            raise refusal(f"`{text}` is not {what}.", hint)
        return text

    return AfterValidator(check)


def _semver(text: str) -> str:
    if len(text) > 128 or not _SEMVER.fullmatch(text):
        raise refusal(f"`{text}` is not a semantic version.", "Write three numbers, such as 1.0.0.")
    return text


def _duration(least_ms: int, most_ms: int) -> BeforeValidator:
    def check(value: Any) -> int:
        duration_ms = parse_duration(value) if isinstance(value, str) else None
        if duration_ms is None:
            written = value if isinstance(value, str | int | float) else type(value).__name__
            raise refusal(f"`{written}` is not a duration.", "Write a number and a unit: 200ms, 20s, 10m, 1h30m, 2d.")
        if not least_ms <= duration_ms <= most_ms:
            least, most = format_duration(least_ms), format_duration(most_ms)
            raise refusal(f"`{value}` is out of bounds.", f"Choose between {least} and {most}.")
        return duration_ms

    return BeforeValidator(check)


WorkflowName = Annotated[
    str,
    _matching(
        r"[a-z][a-z0-9_-]{0,62}",
        "a workflow name",
        "Use a lower-case letter, then up to 62 letters, digits, `_` or `-`.",
    ),
]
StateName = Annotated[
    str,
    _matching(
        r"[A-Za-z_][A-Za-z0-9_]{0,62}",
        "a name for a state",
        "Use letters, digits and `_`, so that `steps.<name>.output` can be written in an expression.",
    ),
]
Name = Annotated[
    str,
    _matching(r"[A-Za-z_][A-Za-z0-9_]{0,62}", "a name", "Use letters, digits and `_`, and no digit at the start."),
]
AgentName = Annotated[
    str,
    _matching(
        r"[A-Za-z][A-Za-z0-9_-]{0,62}",
        "a name for an agent",
        "Use a letter, then up to 62 letters, digits, `_` or `-`.",
    ),
]
ToolName = Annotated[
    str,
    _matching(
        r"(?=.{1,127}$)[A-Za-z][A-Za-z0-9_-]*(\.[A-Za-z][A-Za-z0-9_-]*)*",
        "a name for a tool",
        "Write words joined by dots, such as kb.search.",
    ),
]
ToolReference = Annotated[
    str,
    _matching(
        r"(?=.{1,160}$)[A-Za-z][A-Za-z0-9_-]*(\.[A-Za-z][A-Za-z0-9_-]*)*(@[0-9]+(\.[0-9]+){0,2}(-[0-9A-Za-z.-]+)?)?",
        "a name for a tool",
        "Write words joined by dots, such as kb.search; kb.search@1 and kb.search@1.2.0 name versions of it.",
    ),
]
Label = Annotated[str, _matching(r"\S(.{0,61}\S)?", "a tag", "Use 1 to 63 characters without spaces around them.")]
Semver = Annotated[str, AfterValidator(_semver)]
Timeout = Annotated[int, _duration(1, limits.TIMEOUT_MS_MAX)]
Delay = Annotated[int, _duration(0, limits.RETRY_DELAY_MS_MAX)]
JsonSchema = dict[str, Any]


class Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Metadata(Part):
    name: WorkflowName
    version: Semver
    tags: tuple[Label, ...] = Field(default=(), strict=False, max_length=32)
    description: str = Field(default="", max_length=4_096)


class RetryRule(Part):
    """How a failed step is tried again. Written at all, it means three attempts unless it says otherwise."""

    max_attempts: int = Field(default=3, ge=1, le=limits.STEP_ATTEMPTS_MAX)
    initial: Delay = 200
    multiplier: float = Field(default=2.0, ge=1, le=100)
    max: Delay | None = None
    jitter: Literal["full", "none"] = "full"


class Transition(Part):
    """A way on. Higher priorities are tried first; equal ones in the order they are written."""

    to: str
    condition: str | None = None
    priority: int = Field(default=0, ge=-1_000, le=1_000)


class ErrorRoute(Part):
    """Where faults of these codes lead; without any, all faults. `net_*` means every code that begins so."""

    to: str
    codes: tuple[str, ...] = Field(default=(), strict=False)


def _tag_of(kinds: dict[type, str], otherwise: str) -> Discriminator:
    """Which form was written. The tags begin with `~`, so that `load` can take them out of a path again."""
    return Discriminator(lambda value: next((tag for kind, tag in kinds.items() if isinstance(value, kind)), otherwise))


OnError = Annotated[
    Annotated[str, Tag("~text")] | Annotated[tuple[ErrorRoute, ...], Tag("~routes"), Field(strict=False)],
    _tag_of({list: "~routes", tuple: "~routes"}, "~text"),
]


class Step(Part):
    """Work for an agent or a tool. `output` is the JSON Schema of what it gives back."""

    agent: AgentName | None = None
    tool: ToolReference | None = None
    input: Any = {}
    output: JsonSchema | None = None
    timeout: Timeout | None = None
    retry: RetryRule | None = None

    @property
    def has_step(self) -> bool:
        return self.agent is not None or self.tool is not None


class Body(Step):
    """What a branch, an item or an iteration does: one step written directly, or a machine of its own."""

    initial_state: str | None = None
    final_states: tuple[str, ...] = Field(default=(), strict=False)
    states: "States | None" = None


class Wait(Part):
    duration: Timeout | None = None
    until: str | None = None  # a template that gives a moment: RFC 3339 text or milliseconds
    signal: str | None = Field(default=None, min_length=1, max_length=128)


class Parallel(Part):
    branches: dict[StateName, Body] = Field(min_length=1, max_length=limits.BRANCHES_MAX)
    join: Annotated[
        Annotated[Literal["all", "any"], Tag("~word")] | Annotated[int, Tag("~count"), Field(ge=1)],
        _tag_of({int: "~count"}, "~word"),
    ] = "all"


class Map(Part):
    over: Any
    do: Body
    as_: Name = Field(default="item", alias="as")
    concurrency: int = Field(default=10, ge=1, le=limits.MAP_CONCURRENCY_MAX)
    tolerate: Annotated[
        Annotated[Literal["all"], Tag("~word")] | Annotated[int, Tag("~count"), Field(ge=0)],
        _tag_of({int: "~count"}, "~word"),
    ] = 0


class Loop(Part):
    do: Body
    max: int = Field(ge=1, le=limits.LOOP_MAX)
    while_: str | None = Field(default=None, alias="while")
    for_: Any = Field(default=None, alias="for")
    as_: Name = Field(default="item", alias="as")
    break_: str | None = Field(default=None, alias="break")


def _constraint(text: str) -> str:
    try:
        NpmSpec(text)
    except ValueError:
        hint = "Write 1.2.3, ^1.2, ~1.2.0, >=1 <3 or *."
        raise refusal(f"`{text}` is not a range of versions.", hint) from None
    return text


VersionRange = Annotated[str, AfterValidator(_constraint)]


class Subworkflow(Part):
    name: WorkflowName
    version: VersionRange = "*"


class Human(Part):
    title: str = Field(min_length=1, max_length=1_024)
    instructions: str = ""
    form: JsonSchema | None = None
    assignees: tuple[str, ...] = Field(default=(), strict=False, max_length=100)


class Failure(Part):
    code: Annotated[str, _matching(r"[a-z][a-z0-9_]{0,62}", "an error code", "Use lower-case words joined by `_`.")]
    message: str = ""


def _some_way(ways: tuple[Transition, ...]) -> tuple[Transition, ...]:
    if not ways:
        raise refusal("A choice needs a way to take.", "Write at least one `{to: …}`.")
    return ways


KINDS = ("choice", "wait", "parallel", "map", "subworkflow", "human", "loop", "compensate", "fail", "succeed")


class State(Step):
    """One of `agent`, `tool` and `KINDS` says what it does; the other keys say what comes before and after."""

    choice: Annotated[tuple[Transition, ...], Field(strict=False), AfterValidator(_some_way)] | None = None
    wait: Wait | None = None
    parallel: Parallel | None = None
    map: Map | None = None
    subworkflow: Subworkflow | None = None
    human: Human | None = None
    loop: Loop | None = None
    compensate: Literal[True] | None = None
    fail: Failure | None = None
    succeed: Any = None

    result: Any = None
    vars: dict[Name, Any] = {}
    on_success: str | None = None
    on_error: OnError | None = None
    transitions: tuple[Transition, ...] = Field(default=(), strict=False)
    compensation: Step | None = None
    max_visits: int | None = Field(default=None, ge=1, le=limits.LOOP_MAX)

    @property
    def kinds(self) -> list[str]:
        """What it claims to be: one of `KINDS`, or `step`. A final state may be nothing of it."""
        return ["step"] * self.has_step + [kind for kind in KINDS if kind in self.model_fields_set]

    @cached_property
    def kind(self) -> str | None:
        return next(iter(self.kinds), None)

    @property
    def ends(self) -> bool:
        return self.kind in ("fail", "succeed")

    @property
    def ways(self) -> tuple[Transition, ...]:
        """The ways on after success, as they are written."""
        if self.on_success is not None:
            return (Transition(to=self.on_success),)
        return self.choice or self.transitions

    @property
    def error_routes(self) -> tuple[ErrorRoute, ...]:
        return (ErrorRoute(to=self.on_error),) if isinstance(self.on_error, str) else self.on_error or ()

    def bodies(self) -> list[tuple[tuple[str | int, ...], str, Body]]:
        """What it does inside of it: where that stands below the state, its name, and the body."""
        if self.parallel is not None:
            return [(("parallel", "branches", name), name, body) for name, body in self.parallel.branches.items()]
        inner = self.map or self.loop
        return [] if inner is None else [((self.kind or "", "do"), "do", inner.do)]


def _empty_state(value: Any) -> Any:
    """`done:` with nothing after it is how people write a final state without a step."""
    return {} if value is None else value


States = Annotated[
    dict[StateName, Annotated[State, BeforeValidator(_empty_state)]],
    Field(min_length=1, max_length=limits.STATES_PER_WORKFLOW_MAX),
]


class Fsm(Part):
    initial_state: str
    final_states: tuple[str, ...] = Field(default=(), strict=False, min_length=1)
    states: States


# How many executions of a workflow may be under way at once; others queue.
Concurrency = Annotated[int, Field(ge=1, le=limits.WORKFLOW_CONCURRENCY_MAX)]


class FsmSpec(Part):
    planner: Literal["fsm"]
    fsm: Fsm
    input: JsonSchema | None = None
    timeout: Timeout | None = None
    concurrency: Concurrency | None = None
    vars: dict[Name, Any] = {}  # what the run's variables are before anything happens


class TreeSpec(Part):
    """`tree` and `subtrees` are kept as they were written: `tree.read_tree` knows what may stand in them."""

    planner: Literal["behavior_tree"]
    tree: Any
    subtrees: Any = {}
    input: JsonSchema | None = None
    timeout: Timeout | None = None
    concurrency: Concurrency | None = None
    vars: dict[Name, Any] = {}


Spec = FsmSpec | TreeSpec


class Workflow(Part):
    api_version: Literal["agentflow/v1"] = Field(alias="apiVersion")
    kind: Literal["Workflow"]
    metadata: Metadata
    spec: Annotated[Spec, Field(discriminator="planner")]

    @property
    def machine(self) -> Fsm:
        """The state machine, for those whom a workflow of planner `fsm` was given to."""
        if not isinstance(self.spec, FsmSpec):
            raise Bug(f"A workflow of planner {self.spec.planner} was taken for a state machine.")
        return self.spec.fsm


Body.model_rebuild()
