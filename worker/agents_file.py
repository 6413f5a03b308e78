"""The agents file: which agents and tools a worker hosts, read from YAML with every problem at its line and column.

Pure text in, models out; `wiring` turns them into agents. Functions are named here, not imported.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

from agentflow import limits
from agentflow.contracts.step import TOOLS_AGENT
from agentflow.errors import Invalid, Problem
from agentflow.tools.definition import Backend, CredentialUse, Effect
from agentflow.workflow import document
from agentflow.workflow.model import AgentName, Timeout, ToolName
from agentflow.workflow.source_map import Document, path_text
from agentflow.workflow.source_map import Path as Location
from agentflow.workflow.suggest import did_you_mean

_CALL = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)
_FIELD = re.compile(r"[A-Za-z_][\w-]*(\.[A-Za-z_][\w-]*)*", re.ASCII)
_URL = re.compile(r"https?://[^\s/]+\S*")
_TIMEOUT_MS = 30_000
_MEMORY_MB_MIN, _MEMORY_MB_MAX = 64, 64 * 1024  # an interpreter needs the lower to start at all


class InvalidAgentsFile(Invalid):
    code = "AF1301"

    def __init__(self, path: Path, problems: Sequence[Problem]) -> None:
        count = "one problem" if len(problems) == 1 else f"{len(problems)} problems"
        super().__init__(
            f"The agents file {path} has {count}.",
            hint="Correct the places named above; templates/support/agents.yaml is a working example.",
            problems=problems[: limits.PROBLEMS_SHOWN_MAX],
        )


class AgentsFileUnreadable(Invalid):
    code = "AF1304"

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(
            f"The agents file {path} cannot be read: {reason}.",
            hint="Check AF_AGENTS_FILE and the file's permissions.",
        )


def _refusal(message: str, hint: str) -> PydanticCustomError:
    return PydanticCustomError("definition", "{message}", {"message": message, "hint": hint})


def _call(text: str) -> str:
    if not _CALL.fullmatch(text):
        raise _refusal(f"`{text}` does not name a function.", "Write `module:function`.")
    return text


def _url(text: str) -> str:
    if not _URL.fullmatch(text):
        raise _refusal(f"`{text}` is not an http or https address.", "For example http://127.0.0.1:9000/hook.")
    return text


def _not_built_in(name: str) -> str:
    if name == TOOLS_AGENT:
        raise _refusal(f"The agent `{name}` is built in: it runs the tools.", "Choose another name.")
    return name


def _field(text: str) -> str:
    if not _FIELD.fullmatch(text):
        raise _refusal(f"`{text}` does not name a field of the input.", "Write a name, or `outer.inner` to go deeper.")
    return text


def _burst_within(limit: "RateLimitSpec") -> "RateLimitSpec":
    if limit.burst > limit.calls:
        raise _refusal("`burst` is more than `calls`.", "A burst is part of the calls, not on top of them.")
    return limit


Call = Annotated[str, AfterValidator(_call)]
Concurrency = Annotated[int, Field(ge=1, le=limits.AGENT_CONCURRENCY_MAX)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class QuickRetrySpec(_Strict):
    """Tries within one attempt of a step; the workflow's own `retry` counts attempts."""

    tries: Annotated[int, Field(ge=1, le=10)] = 3
    initial: Timeout = 100
    multiplier: Annotated[float, Field(ge=1, le=10, strict=False)] = 2.0
    max: Timeout = 2_000


class RateLimitSpec(_Strict):
    calls: Annotated[int, Field(ge=1, le=1_000_000)]
    per: Timeout = 1_000
    burst: Annotated[int, Field(ge=1, le=1_000_000)] = 1


class CircuitSpec(_Strict):
    failures: Annotated[int, Field(ge=1, le=1_000)] = 5
    window: Timeout = 30_000
    open_for: Timeout = 10_000
    probes: Annotated[int, Field(ge=1, le=100)] = 1


class _Guarded(_Strict):
    retry: QuickRetrySpec | None = None
    rate_limit: Annotated[RateLimitSpec, AfterValidator(_burst_within)] | None = None
    circuit: CircuitSpec | None = None
    bulkhead: Concurrency | None = None


# When a finished result goes to disk: if the stream is late with its receipt, or before it is asked at all.
Spooling = Literal["when_late", "always"]


class StateSpec(_Strict):
    """What an agent remembers from step to step, and when that is saved."""

    key: Annotated[str, AfterValidator(_field)] | None = None
    checkpoint: Literal["after_step", "periodic", "manual"] = "after_step"
    every: Timeout = 30_000
    hibernate_after: Timeout = 5 * 60_000


class FunctionAgentSpec(_Guarded):
    type: Literal["function"]
    call: Call
    state: StateSpec | None = None
    spool: Spooling = "when_late"
    concurrency: Concurrency = limits.AGENT_CONCURRENCY_DEFAULT


class HttpAgentSpec(_Guarded):
    type: Literal["http"]
    url: Annotated[str, AfterValidator(_url)]
    timeout: Timeout = _TIMEOUT_MS
    headers: dict[str, str] = {}
    spool: Spooling = "when_late"
    concurrency: Concurrency = limits.AGENT_CONCURRENCY_DEFAULT


class ToolSpec(_Guarded):
    type: Literal["function"]
    call: Call
    timeout: Timeout = _TIMEOUT_MS
    memory_mb: Annotated[int, Field(ge=_MEMORY_MB_MIN, le=_MEMORY_MB_MAX)] = 256
    permissions: list[str] = []
    environment: dict[str, str] = {}
    sandbox: Backend | None = None  # the weakest backend it accepts; none: whatever the deployment uses
    effect: Effect = "idempotent"
    reconcile: Call | None = None


_POLICIES: dict[str | int, type[BaseModel]] = {
    "retry": QuickRetrySpec,
    "rate_limit": RateLimitSpec,
    "circuit": CircuitSpec,
    "state": StateSpec,
}


class BuiltinToolSpec(_Guarded):
    """One of AgentFlow's own tools, with what this worker grants it beyond what it needs anyway."""

    type: Literal["builtin"]
    permissions: list[str] = []
    credentials: list[CredentialUse] = []
    sandbox: Backend | None = None


class CeilingSpec(_Strict):
    """The most that any call gets, whatever its tool asks for."""

    timeout: Timeout | None = None
    cpus: Annotated[float, Field(gt=0, le=64, strict=False)] | None = None
    memory_mb: Annotated[int, Field(ge=_MEMORY_MB_MIN, le=_MEMORY_MB_MAX)] | None = None
    processes: Annotated[int, Field(ge=1, le=100_000)] | None = None
    disk_mb: Annotated[int, Field(ge=1, le=1024 * 1024)] | None = None
    output_kb: Annotated[int, Field(ge=1, le=limits.VALUE_BYTES_MAX // 1024)] | None = None


class GrantsSpec(_Strict):
    allow: list[str] = []
    deny: list[str] = []
    ceilings: CeilingSpec = CeilingSpec()
    sandbox: Backend | None = None  # the weakest backend it accepts


class RoleSpec(GrantsSpec):
    workflows: Annotated[list[str], Field(min_length=1)]  # whose steps have this role; `*` for all that have none


class PolicySpec(_Strict):
    """Who may do what with tools here. Without roles (or tenants) that side allows everything; with some, only them."""

    roles: dict[str, RoleSpec] = {}
    tenants: dict[str, GrantsSpec] = {}  # `*` for all that are not named


class RegisteredTools(GrantsSpec):
    """What tools from the registry may ask for on this worker. Whoever may push a tool gets no more than this."""

    allow: list[str] = ["network.http:*", "fs.tmp", "fs.workspace"]


HostedToolSpec = Annotated[ToolSpec | BuiltinToolSpec, Field(discriminator="type")]
AgentSpec = Annotated[FunctionAgentSpec | HttpAgentSpec, Field(discriminator="type")]


class AgentsFile(_Strict):
    apiVersion: Literal["agentflow/v1"]  # noqa: N815 - the file's own word
    kind: Literal["Agents"]
    agents: dict[Annotated[AgentName, AfterValidator(_not_built_in)], AgentSpec] = {}
    tools: dict[ToolName, HostedToolSpec] = {}
    registered_tools: RegisteredTools | None = None
    policy: PolicySpec = PolicySpec()


def read_agents_file(path: Path) -> AgentsFile:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise AgentsFileUnreadable(path, str(reason)) from None
    return parse_agents(text, path)


def parse_agents(text: str, path: Path) -> AgentsFile:
    """`path` only names the file in errors."""
    read, problems = document.read(text)
    if read is None:
        raise InvalidAgentsFile(path, problems)
    try:
        agents = AgentsFile.model_validate(read.data)
    except ValidationError as error:
        problems += [_problem(read, detail) for detail in error.errors(include_url=False)]
        raise InvalidAgentsFile(path, sorted(problems, key=_place)) from None
    if problems:
        raise InvalidAgentsFile(path, problems)
    return agents


def _problem(read: Document, fault: ErrorDetails) -> Problem:
    location = _in_document(read.data, fault["loc"])
    context = fault.get("ctx", {})
    last = fault["loc"][-1] if fault["loc"] else ""
    place = read.key_position(location) if last == "[key]" else read.position(location)
    match fault["type"]:
        case "definition":
            message, hint = context["message"], context["hint"]
        case "missing":
            message, hint = f"`{last}` is missing.", f"Add `{last}: …` here."
        case "extra_forbidden":
            place = read.key_position(location)
            message, hint = f"`{last}` is not a key of this.", did_you_mean(str(last), _keys(location), kind="keys")
        case "union_tag_not_found":
            choices = "builtin" if location[:1] == ("tools",) else "http"
            message, hint = "`type` is missing.", f"Write `type: function` or `type: {choices}`."
        case "union_tag_invalid":
            place = read.position((*location, "type"))
            what, choices = ("tool", "builtin") if location[:1] == ("tools",) else ("agent", "http")
            message, hint = f"`{context['tag']}` is not a type of {what}.", f"Write `function` or `{choices}`."
        case "dict_type" | "model_type":
            message, hint = "This must be a mapping.", "Write `key: value` lines here."
        case _:
            message, hint = fault["msg"].replace("Input should be", "This must be", 1) + ".", ""
    return Problem(message, hint, *place, path_text(location))


def _keys(location: Location) -> list[str]:
    """What may stand beside the key at `location`."""
    match location:
        case ("agents" | "tools", _, policy, _) if policy in _POLICIES:
            return list(_POLICIES[policy].model_fields)
        case ("agents", _, _):
            return [*HttpAgentSpec.model_fields, "call", "state"]
        case ("tools", _, _):
            return [*ToolSpec.model_fields, *BuiltinToolSpec.model_fields]
        case ("policy", _):
            return list(PolicySpec.model_fields)
        case ("policy", _, _, "ceilings", _) | ("registered_tools", "ceilings", _):
            return list(CeilingSpec.model_fields)
        case ("policy", _, _, _) | ("registered_tools", _):
            return list(RoleSpec.model_fields)
        case _:
            return list(AgentsFile.model_fields)


def _in_document(data: Any, location: Location) -> Location:
    """pydantic's location without the parts it adds itself: the tag of a union, `[key]`."""
    found: list[str | int] = []
    for part in location:
        known = part in data if isinstance(data, dict) else isinstance(data, list) and isinstance(part, int)
        if known:
            data = data[part]
            found.append(part)
    return tuple(found)


def _place(problem: Problem) -> tuple[int, int]:
    return problem.line or 0, problem.column or 0
