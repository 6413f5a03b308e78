"""What is on record about a tool: each call (`tools.calls`, `tools.audit`) and each word it had with the outside.

Published by workers on the stream AF_AUDIT, as payloads of `Message`. Hashes, sizes and times; arguments only in their
redacted form, and never a secret.
"""

from typing import Any, Literal

import msgspec

from agentflow.contracts.step import StepFault
from agentflow.ids import ExecutionId, WorkerId

EgressVerdict = Literal["allowed", "denied", "closed"]


class CallSite(msgspec.Struct, frozen=True):
    """Which attempt of which step of whose execution something was done for."""

    tenant_id: str
    execution_id: ExecutionId
    step: str
    attempt: int
    tool: str
    trace_id: str = ""  # of the execution: what ties a record to everything else that was done for it


class EgressRecord(msgspec.Struct, frozen=True, tag_field="kind", tag="egress.v1"):
    """One decision of the egress proxy, or the end of a connection it allowed (`closed`, with the bytes that went)."""

    site: CallSite
    verdict: EgressVerdict
    way: str  # http, connect, socks5 or tls: how the sandbox asked
    host: str  # as asked; cut where it is no host name
    port: int
    at_ms: int
    address: str = ""
    reason: str = ""  # the refusal's code
    bytes_up: int = 0
    bytes_down: int = 0
    secret: str = ""  # the name of the credential that was put in, never its value


class ToolCallRecord(msgspec.Struct, frozen=True, tag_field="kind", tag="tool_call.v1"):
    """One call of a tool, whatever became of it; there is exactly one for each."""

    site: CallSite
    call_id: str
    worker: WorkerId
    tool_version: str
    tool_digest: str
    backend: str
    isolation: str
    profile_hash: str
    effect: str
    effect_key: str
    started_at_ms: int
    duration_ms: int
    cpu_ms: int
    max_rss_bytes: int
    input_bytes: int
    output_bytes: int
    input_hash: str
    output_hash: str
    exit_code: int | None
    fault: StepFault | None
    arguments: Any  # redacted
    layers: tuple[str, ...] = ()  # the fences that really stood
    workspace_digest: str | None = None  # what the call left there; None where it had none
    egress_allowed: int = 0
    egress_denied: int = 0
    cost_dollars: float = 0.0


ToolRecord = ToolCallRecord | EgressRecord
