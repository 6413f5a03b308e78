"""What a definition may contain, as pydantic models: the edge where people type.

Shapes and single values only; what joins them (does that state exist?) is in `validate`, and what an
expression means is the planner's. Unknown keys are refused: a key that is silently ignored is a lie.
"""

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

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
Tag = Annotated[str, _matching(r"\S(.{0,61}\S)?", "a tag", "Use 1 to 63 characters without spaces around them.")]
Semver = Annotated[str, AfterValidator(_semver)]
Timeout = Annotated[int, _duration(1, limits.TIMEOUT_MS_MAX)]
Delay = Annotated[int, _duration(0, limits.RETRY_DELAY_MS_MAX)]
JsonSchema = dict[str, Any]


class Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Metadata(Part):
    name: WorkflowName
    version: Semver
    tags: tuple[Tag, ...] = Field(default=(), strict=False, max_length=32)
    description: str = Field(default="", max_length=4_096)


class RetryRule(Part):
    """How a failed step is tried again. Written at all, it means three attempts unless it says otherwise."""

    max_attempts: int = Field(default=3, ge=1, le=limits.STEP_ATTEMPTS_MAX)
    initial: Delay = 200
    multiplier: float = Field(default=2.0, ge=1, le=100)
    max: Delay | None = None
    jitter: Literal["full", "none"] = "full"


class Transition(Part):
    to: str
    condition: str | None = None


class State(Part):
    """`agent` or `tool` is its step; `output` is the JSON Schema of what that step gives back."""

    agent: AgentName | None = None
    tool: ToolName | None = None
    input: Any = {}
    output: JsonSchema | None = None
    timeout: Timeout | None = None
    retry: RetryRule | None = None
    on_success: str | None = None
    on_error: str | None = None
    transitions: tuple[Transition, ...] = Field(default=(), strict=False)

    @property
    def has_step(self) -> bool:
        return self.agent is not None or self.tool is not None


def _empty_state(value: Any) -> Any:
    """`done:` with nothing after it is how people write a final state without a step."""
    return {} if value is None else value


class Fsm(Part):
    initial_state: str
    final_states: tuple[str, ...] = Field(strict=False, min_length=1)
    states: dict[StateName, Annotated[State, BeforeValidator(_empty_state)]] = Field(
        min_length=1, max_length=limits.STATES_PER_WORKFLOW_MAX
    )


class FsmSpec(Part):
    planner: Literal["fsm"]
    fsm: Fsm
    input: JsonSchema | None = None
    timeout: Timeout | None = None


class TreeSpec(Part):
    """`tree` and `subtrees` are kept as they were written: `tree.read_tree` knows what may stand in them."""

    planner: Literal["behavior_tree"]
    tree: Any
    subtrees: Any = {}
    input: JsonSchema | None = None
    timeout: Timeout | None = None


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
