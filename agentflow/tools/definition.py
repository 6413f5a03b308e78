"""A tool's definition as pydantic models: the edge where people type. Unknown keys are refused.

Shapes and single values only. What a permission means is `sandbox.permissions`' to say, and whether a schema can be
used `control_plane.registry.schemas`'.
"""

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError

from agentflow.canonical import sha256_hex
from agentflow.workflow.model import JsonSchema, Semver, Timeout, ToolName

Effect = Literal["idempotent", "at_most_once", "transactional"]
Backend = Literal["process", "docker", "gvisor", "wasm"]

_TIMEOUT_MS = 30_000
_MEMORY_MB_MIN, _MEMORY_MB_MAX = 64, 64 * 1024  # an interpreter needs the lower to start at all
_CALL = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)
_IMAGE = re.compile(r"([a-z0-9][a-z0-9._/:-]*@)?sha256:[0-9a-f]{64}")
_SECRET = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_HEADER = re.compile(r"[A-Za-z0-9-]{1,64}")
_URL = re.compile(r"https?://[^\s/@]+(/\S*)?")


def _matching(pattern: re.Pattern[str], what: str, hint: str) -> AfterValidator:
    def check(text: str) -> str:
        if not pattern.fullmatch(text):
            problem = {"message": f"`{text}` is not {what}.", "hint": hint}
            raise PydanticCustomError("definition", "{message}", problem)
        return text

    return AfterValidator(check)


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class RunFunction(_Part):
    """A Python function, found beside the worker's agents file or installed with the worker."""

    type: Literal["function"]
    call: Annotated[str, _matching(_CALL, "a function", "Write `module:function`.")]
    # Asked whether an earlier call, whose result was lost, was made: gets `input` and `effect_key`, answers
    # `{done: true, output: …}`, `{done: false}`, or anything else where it cannot tell.
    reconcile: Annotated[str, _matching(_CALL, "a function", "Write `module:function`.")] | None = None


class RunCommand(_Part):
    """An executable of the worker's machine: input as JSON on stdin, output as JSON on stdout, logs on stderr."""

    type: Literal["command"]
    argv: tuple[str, ...] = Field(strict=False, min_length=1, max_length=128)


class RunContainer(_Part):
    type: Literal["container"]
    image: Annotated[
        str, _matching(_IMAGE, "an image with its digest", "Write `name@sha256:` and 64 hex digits, or an image's id.")
    ]
    argv: tuple[str, ...] = Field(default=(), strict=False, max_length=128)


class RunWasm(_Part):
    type: Literal["wasm"]
    file: str = Field(min_length=1, max_length=1024)


class RunHttp(_Part):
    """A POST of the input as JSON; the answer's JSON is the output. The host must be granted like any other."""

    type: Literal["http"]
    url: Annotated[str, _matching(_URL, "an http or https address", "For example https://api.example.com/v1/do.")]
    method: Literal["POST", "PUT", "PATCH"] = "POST"
    headers: dict[Annotated[str, _matching(_HEADER, "a header", "Use letters, digits and -.")], str] = {}


class RunBuiltin(_Part):
    """One of AgentFlow's own; only the files in this package say so."""

    type: Literal["builtin"]


Run = Annotated[RunFunction | RunCommand | RunContainer | RunWasm | RunHttp | RunBuiltin, Field(discriminator="type")]


class CredentialUse(_Part):
    """A secret that the egress proxy puts into a header of requests to `host`. The tool never sees it."""

    host: str = Field(min_length=1, max_length=253)
    secret: Annotated[str, _matching(_SECRET, "a name of a secret", "Use letters, digits, `_`, `-` and `.`.")]
    header: Annotated[str, _matching(_HEADER, "a header", "Use letters, digits and -.")] = "Authorization"
    format: str = Field(default="Bearer {}", max_length=256)


class CostModel(_Part):
    """What a call costs beyond the machine it runs on."""

    dollars_per_call: float = Field(default=0.0, ge=0, strict=False)
    dollars_per_second: float = Field(default=0.0, ge=0, strict=False)


class ToolMetadata(_Part):
    name: ToolName
    version: Semver
    description: str = Field(default="", max_length=4_096)


class ToolSpec(_Part):
    run: Run
    input: JsonSchema = {}
    output: JsonSchema = {}
    permissions: tuple[str, ...] = Field(default=(), strict=False, max_length=64)
    credentials: tuple[CredentialUse, ...] = Field(default=(), strict=False, max_length=16)
    environment: dict[str, str] = {}
    timeout: Timeout = _TIMEOUT_MS
    memory_mb: int = Field(default=256, ge=_MEMORY_MB_MIN, le=_MEMORY_MB_MAX)
    # Doing it twice: harmless; never; or harmless after a failure, which the tool itself undoes. The last two are
    # claimed before they run, and are in doubt when their result is lost.
    effect: Effect = "idempotent"
    cost: CostModel = CostModel()
    sandbox: Backend | None = None  # the weakest backend it accepts; none: whatever the deployment uses


class ToolDefinition(_Part):
    api_version: Literal["agentflow/v1"] = Field(alias="apiVersion")
    kind: Literal["Tool"]
    metadata: ToolMetadata
    spec: ToolSpec

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def version(self) -> str:
        return self.metadata.version


def digest_of(data: Any) -> str:
    """The name of a definition's content: comments and the order of keys do not count."""
    return sha256_hex(data)
