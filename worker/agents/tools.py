"""The built-in agent `tools`: every tool call of this worker, each under its compiled profile in the sandbox."""

from collections.abc import Mapping
from typing import Any

import msgspec
import structlog

from agentflow.contracts.step import StepFault, StepRequest
from sandbox.policy import ExecProfile
from sandbox.runner import Sandbox
from sandbox.tool_call import ToolCall
from worker.agents.agent import StepContext
from worker.outcome import StepFailed

_PRINTED_CHARS_MAX = 4_000

log = structlog.get_logger(__name__)


class HostedTool(msgspec.Struct, frozen=True):
    """Where a tool's function is found, and the one profile it runs under."""

    call: str
    path: tuple[str, ...]
    profile: ExecProfile


class ToolsAgent:
    def __init__(self, tools: Mapping[str, HostedTool], *, sandbox: Sandbox) -> None:
        self._tools = tools
        self._sandbox = sandbox

    async def run(self, request: StepRequest, context: StepContext) -> Any:
        tool = self._tools.get(request.tool or "")
        if tool is None:
            known = ", ".join(sorted(self._tools))
            unknown = f"No tool {request.tool!r} on this worker; it has {known}."
            raise StepFailed(StepFault("tool_unknown", unknown))
        call = ToolCall(
            call=tool.call,
            path=tool.path,
            input=request.input,
            execution_id=context.execution_id,
            step=context.step,
            attempt=context.attempt,
            effect_key=context.effect_key,
        )
        outcome = await self._sandbox.run(call, tool.profile)
        log.info(
            "tool.ended",
            execution=request.execution_id,
            step=request.path,
            attempt=request.attempt,
            tool=request.tool,
            backend=outcome.backend,
            isolation=outcome.isolation,
            layers=outcome.layers,
            profile=outcome.profile_hash[:12],
            fault=outcome.fault.code if outcome.fault else None,
            duration_ms=round(outcome.duration_s * 1000),
            max_rss_bytes=outcome.max_rss_bytes,
            printed=outcome.logs[:_PRINTED_CHARS_MAX] or None,
        )
        if outcome.fault is not None:
            raise StepFailed(outcome.fault)
        return outcome.output

    async def close(self) -> None:
        await self._sandbox.close()
