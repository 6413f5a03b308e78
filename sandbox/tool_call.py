"""The two words between a worker and a sandbox: a call, and what became of it."""

from typing import Any

import msgspec

from agentflow.contracts.step import StepFault
from agentflow.ids import ExecutionId
from sandbox.policy import Isolation


class Command(msgspec.Struct, frozen=True):
    """An executable: the input as JSON on its stdin, the output as JSON on its stdout, its log on stderr."""

    argv: tuple[str, ...]


class Container(msgspec.Struct, frozen=True):
    """A command in an image of its own, which is named by digest."""

    image: str
    argv: tuple[str, ...] = ()  # empty: what the image says


class WasmModule(msgspec.Struct, frozen=True):
    """A WASM file, run by the `wasm` backend only."""

    file: str


class ToolCall(msgspec.Struct, frozen=True):
    """One call: a text names a Python `module:function`, importable from `path`.

    The rest reaches the function as its `context`. Commands, containers and WASM modules find `path` unused.
    """

    call: str | Command | Container | WasmModule
    path: tuple[str, ...]
    input: Any
    execution_id: ExecutionId
    step: str
    attempt: int
    effect_key: str
    # This attempt's unix socket to the egress proxy, the only way out; a backend makes it reachable inside, and the
    # tool finds it in AGENTFLOW_EGRESS. None: there is no way out.
    egress: str | None = None
    # The execution's folder; inside it is AGENTFLOW_WORKSPACE, if the profile grants it.
    workspace: str | None = None
    # The certificate (PEM) of who ends TLS for it at the egress proxy, for hosts whose requests get a credential.
    trusted: str | None = None
    # Two tenants never share a sandbox, not even one after the other.
    tenant: str = "default"


class SandboxOutcome(msgspec.Struct, frozen=True):
    """Exactly one of `output` and `fault` is meant. `logs` is what the tool printed, cut at a bound."""

    isolation: Isolation
    profile_hash: str
    duration_s: float
    output: Any = None
    fault: StepFault | None = None
    exit_code: int | None = None  # negative: the signal that ended it; None: it never came to an end of its own
    cpu_s: float = 0.0
    max_rss_bytes: int = 0
    logs: str = ""
    backend: str = "process"
    # What the call left in its workspace; None where it had none.
    workspace_digest: str | None = None
    # The fences that really stood, for the audit record
    layers: tuple[str, ...] = ()
