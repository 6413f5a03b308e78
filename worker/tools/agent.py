"""The built-in agent `tools`: every tool call of this worker, each under its compiled profile in the sandbox.

Finds the tool (pinned by the execution, named in the agents file, or built in), checks the input, opens the way out if
hosts are granted, runs it, checks the output, and leaves exactly one record of the call, whatever became of it.
"""

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import structlog

from agentflow.canonical import NotCanonical, sha256_hex
from agentflow.clock import Clock
from agentflow.contracts.step import StepFault, StepRequest
from agentflow.contracts.tool_questions import ToolTest, ToolTestOutcome
from agentflow.contracts.tool_records import CallSite, ToolCallRecord
from agentflow.errors import AgentFlowError
from agentflow.ids import ExecutionId
from agentflow.tools.load import LoadedTool, builtin_tools, tool_from_data
from sandbox.egress.allowance import Allowance
from sandbox.egress.door import Door, EgressProxy
from sandbox.policy import Grants
from sandbox.runner import Sandbox
from sandbox.tool_call import SandboxOutcome, ToolCall
from worker.agents.agent import StepContext
from worker.outcome import StepFailed, fault_of
from worker.tools import schemas
from worker.tools.definitions import Definitions
from worker.tools.hosting import HostedTool, host
from worker.tools.records import ToolRecords
from worker.tools.redaction import redacted

_PRINTED_CHARS_MAX = 4_000

log = structlog.get_logger(__name__)


class ToolsAgent:
    def __init__(
        self,
        tools: Mapping[str, HostedTool],
        *,
        sandbox: Sandbox,
        egress: EgressProxy,
        records: ToolRecords,
        definitions: Definitions,
        registered: Grants,
        folder: str,
        workspaces: Path,
        clock: Clock,
    ) -> None:
        self._tools = tools
        self._sandbox = sandbox
        self._egress = egress
        self._records = records
        self._definitions = definitions
        self._registered = registered
        self._folder = folder
        self._workspaces = workspaces
        self._clock = clock
        self._pinned: dict[str, HostedTool] = {}

    async def run(self, request: StepRequest, context: StepContext) -> Any:
        tenant = context.tenant
        tool = await self._find(tenant, request.tool or "", request.tool_digest)
        if tool.effect == "at_most_once" and context.attempt > 1:
            # Whoever had the earlier attempt may have done it before falling silent; a second time is never our guess.
            doubt = (
                f"An earlier attempt may have called {tool.name}, which is to be called once at most. Look, and decide."
            )
            raise StepFailed(StepFault("in_doubt", doubt))
        site = CallSite(tenant, context.execution_id, request.path, context.attempt, tool.name)
        call = ToolCall(
            call=tool.call,
            path=tool.path,
            input=tool.given(request.input),
            execution_id=context.execution_id,
            step=context.step,
            attempt=context.attempt,
            effect_key=context.effect_key,
            workspace=self._workspace(site) if tool.has_workspace else None,
            tenant=tenant,
        )
        outcome = await self._recorded(tool, site, call, request.input)
        await self._records.stored()
        if outcome.fault is not None:
            raise StepFailed(outcome.fault)
        return outcome.output

    async def try_out(self, test: ToolTest) -> ToolTestOutcome:
        """One call outside of any execution, for whoever writes a tool. What goes wrong is the answer."""
        try:
            loaded = tool_from_data(test.definition) if test.definition else builtin_tools().get(test.tool)
            tool = self._registered_tool(loaded) if test.definition and loaded else self._known(test.tool)
            if not test.network:
                tool = msgspec.structs.replace(tool, grants=())
            site = CallSite(test.tenant_id, ExecutionId(f"test_{test.call_id}"), "test", 1, tool.name)
            key = f"{test.tenant_id}/test/{test.call_id}"
            call = ToolCall(
                call=tool.call, path=tool.path, input=tool.given(test.input), execution_id=site.execution_id,
                step="test", attempt=1, effect_key=key, tenant=test.tenant_id,
                workspace=self._workspace(site) if tool.has_workspace else None,
            )  # fmt: skip
            outcome = await self._recorded(tool, site, call, test.input)
            await self._records.stored()
        except Exception as error:  # noqa: BLE001 - the answer to a test is what went wrong
            return ToolTestOutcome(fault=fault_of(error), worker=self._records.worker)
        return ToolTestOutcome(
            output=outcome.output,
            fault=outcome.fault,
            logs=outcome.logs[:_PRINTED_CHARS_MAX],
            duration_ms=round(outcome.duration_s * 1000),
            backend=tool.profile.backend,
            isolation=outcome.isolation,
            profile_hash=outcome.profile_hash,
            worker=self._records.worker,
        )

    async def close(self) -> None:
        await self._sandbox.close()
        await self._records.close()

    async def _find(self, tenant: str, name: str, digest: str | None) -> HostedTool:
        if digest is None or (name in builtin_tools() and builtin_tools()[name].digest == digest):
            return self._known(name)
        if digest not in self._pinned:
            self._pinned[digest] = self._registered_tool(await self._definitions.get(tenant, digest))
        return self._pinned[digest]

    def _known(self, name: str) -> HostedTool:
        tool = self._tools.get(name)
        if tool is not None:
            return tool
        known = ", ".join(sorted(self._tools))
        unknown = f"No tool {name!r} on this worker; it has {known}."
        if name in builtin_tools():
            unknown = (
                f"The built-in tool {name!r} is not hosted here; add `{name}: {{type: builtin}}` to the agents file."
            )
        raise StepFailed(StepFault("tool_unknown", unknown))

    def _registered_tool(self, loaded: LoadedTool) -> HostedTool:
        return host(loaded, sandbox=self._sandbox, folder=self._folder, tenant=self._registered)

    def _workspace(self, site: CallSite) -> str:
        folder = self._workspaces / site.tenant_id / site.execution_id
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return str(folder)

    async def _recorded(self, tool: HostedTool, site: CallSite, call: ToolCall, input: Any) -> SandboxOutcome:
        """The call and its record, which is noted even where the call is cancelled."""
        started_at_ms, began_s = self._clock.now_ms(), self._clock.monotonic_s()
        doors: list[Door] = []
        outcome = _never_ran(tool, "cancelled", "The call was given up before it ended.")
        try:
            outcome = await self._checked(tool, site, call, input, doors)
        except AgentFlowError as error:
            outcome = _never_ran(tool, error.code, error.message)
        finally:
            counts = doors[0].counts if doors else {"allowed": 0, "denied": 0}
            took_s = self._clock.monotonic_s() - began_s
            self._records.note(
                ToolCallRecord(
                    site=site,
                    call_id=self._records.new_id(),
                    worker=self._records.worker,
                    tool_version=tool.version,
                    tool_digest=tool.digest,
                    backend=tool.profile.backend,
                    isolation=outcome.isolation,
                    profile_hash=outcome.profile_hash,
                    effect=tool.effect,
                    effect_key=call.effect_key,
                    started_at_ms=started_at_ms,
                    duration_ms=round(took_s * 1000),
                    cpu_ms=round(outcome.cpu_s * 1000),
                    max_rss_bytes=outcome.max_rss_bytes,
                    **_sizes(input, outcome),
                    exit_code=outcome.exit_code,
                    fault=outcome.fault,
                    arguments=redacted(input, secrets=self._secrets(tool)),
                    egress_allowed=counts["allowed"],
                    egress_denied=counts["denied"],
                    cost_dollars=tool.dollars_per_call + tool.dollars_per_second * took_s,
                )
            )
            self._log(site, tool, outcome)
        return outcome

    async def _checked(
        self, tool: HostedTool, site: CallSite, call: ToolCall, input: Any, doors: list[Door]
    ) -> SandboxOutcome:
        wrong = schemas.faults(tool.input, input, "input")
        if wrong:
            return _never_ran(
                tool, "tool_input_invalid", f"The input does not fit {tool.name} {tool.version}: {wrong}."
            )
        async with contextlib.AsyncExitStack() as stack:
            if tool.grants:
                allowed = Allowance(site, tool.grants, tool.credentials)
                doors.append(await stack.enter_async_context(self._egress.door(allowed)))
                call = msgspec.structs.replace(call, egress=doors[0].path)
            outcome = await self._sandbox.run(call, tool.profile)
        if outcome.fault is None:
            wrong = schemas.faults(tool.output, outcome.output, "output")
            if wrong:
                fault = StepFault("tool_output_invalid", f"The output does not fit its schema: {wrong}.")
                return msgspec.structs.replace(outcome, output=None, fault=fault)
        return outcome

    def _secrets(self, tool: HostedTool) -> list[str]:
        found = (self._egress.secret_of(credential.secret) for credential in tool.credentials)
        return [value for value in found if value]

    def _log(self, site: CallSite, tool: HostedTool, outcome: SandboxOutcome) -> None:
        log.info(
            "tool.ended",
            execution=site.execution_id,
            step=site.step,
            attempt=site.attempt,
            tool=f"{tool.name}@{tool.version}",
            backend=outcome.backend,
            isolation=outcome.isolation,
            layers=outcome.layers,
            profile=outcome.profile_hash[:12],
            fault=outcome.fault.code if outcome.fault else None,
            duration_ms=round(outcome.duration_s * 1000),
            max_rss_bytes=outcome.max_rss_bytes,
            printed=outcome.logs[:_PRINTED_CHARS_MAX] or None,
        )


def _never_ran(tool: HostedTool, code: str, message: str) -> SandboxOutcome:
    return SandboxOutcome(
        isolation=tool.profile.isolation,
        profile_hash=tool.profile_hash,
        duration_s=0.0,
        fault=StepFault(code, message),
        backend=tool.profile.backend,
    )


def _sizes(input: Any, outcome: SandboxOutcome) -> dict[str, Any]:
    output = outcome.output if outcome.fault is None else None
    return {
        "input_bytes": len(msgspec.json.encode(input)),
        "output_bytes": len(msgspec.json.encode(output)),
        "input_hash": _hash(input),
        "output_hash": _hash(output),
    }


def _hash(value: Any) -> str:
    try:
        return sha256_hex(value)
    except NotCanonical:
        return ""
