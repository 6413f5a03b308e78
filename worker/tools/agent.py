"""The built-in agent `tools`: every tool call of this worker, each under its compiled profile in its sandbox.

Finds the tool (pinned by the execution, named in the agents file, or built in), has its permit compiled for whoever
calls, checks the input, opens workspace and way out where they are granted, runs it in the backend that was insisted
on, checks the output, and leaves exactly one record of the call, whatever became of it, also where it was refused.
"""

import contextlib
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping
from typing import Any

import msgspec
import structlog

from agentflow.canonical import NotCanonical, sha256_hex
from agentflow.clock import Clock
from agentflow.contracts.step import IN_DOUBT, NOT_DONE, StepFault, StepRequest
from agentflow.contracts.tool_questions import ToolTest, ToolTestOutcome
from agentflow.contracts.tool_records import CallSite, ToolCallRecord
from agentflow.contracts.usage import MICRODOLLARS, Usage, tool_price
from agentflow.contracts.workspace import WorkspaceLeft
from agentflow.errors import AgentFlowError
from agentflow.ids import ExecutionId
from agentflow.tools.load import LoadedTool, builtin_tools, tool_from_data
from sandbox.egress.allowance import Allowance
from sandbox.egress.door import Door, EgressProxy
from sandbox.policy import ExecProfile, Grants, profile_hash, refused_profile
from sandbox.runner import Sandboxes
from sandbox.tool_call import SandboxOutcome, ToolCall
from worker.agents.agent import StepContext
from worker.outcome import StepFailed, fault_of
from worker.tools import schemas
from worker.tools.authorities import Authorities
from worker.tools.claiming import CallClaims
from worker.tools.definitions import Definitions
from worker.tools.hosting import HostedTool, Permit, backend_of, host, permit
from worker.tools.records import ToolRecords
from worker.tools.redaction import redacted
from worker.tools.workspaces import Workspace, Workspaces

_PRINTED_CHARS_MAX = 4_000
_PERMITS_KEPT = 1_024
_INPUT_INVALID = "tool_input_invalid"
_TEST = "af tool test"  # what stands where a workflow's name would
_TEST_S = 60.0

log = structlog.get_logger(__name__)


class _Call(msgspec.Struct, frozen=True):
    """One call as it was asked for, before anything about it is decided."""

    tool: HostedTool
    site: CallSite
    workflow: str
    input: Any
    effect_key: str
    step: str
    patience_s: float
    network: bool = True
    is_test: bool = False
    workspace: WorkspaceLeft | None = None  # what the record knows of it
    usage: list[Usage] = msgspec.field(default_factory=list)  # of the step: what the call costs is added here
    left: list[WorkspaceLeft] = msgspec.field(default_factory=list)  # and here what it leaves in the workspace


class ToolsAgent:
    def __init__(
        self,
        tools: Mapping[str, HostedTool],
        *,
        sandboxes: Sandboxes,
        authorities: Authorities,
        egress: EgressProxy,
        records: ToolRecords,
        definitions: Definitions,
        claims: CallClaims,
        registered: Grants,
        folder: str,
        workspaces: Workspaces,
        clock: Clock,
    ) -> None:
        self._tools = tools
        self._sandboxes = sandboxes
        self._authorities = authorities
        self._egress = egress
        self._records = records
        self._definitions = definitions
        self._claims = claims
        self._registered = registered
        self._folder = folder
        self._workspaces = workspaces
        self._clock = clock
        self._pinned: dict[str, HostedTool] = {}
        self._permits: OrderedDict[tuple[str, str, tuple[Grants, ...]], Permit] = OrderedDict()

    async def run(self, request: StepRequest, context: StepContext) -> Any:
        tenant = context.tenant
        tool = await self._find(tenant, request.tool or "", request.tool_digest)
        asked = _Call(
            tool,
            CallSite(tenant, context.execution_id, request.path, context.attempt, tool.name, context.trace_id),
            request.workflow,
            request.input,
            context.effect_key,
            context.step,
            context.remaining_s,
            workspace=request.workspace,
            usage=context.usage,
            left=context.left,
        )
        if request.in_doubt:
            return await self._found_out(asked)
        if tool.effect in ("at_most_once", "transactional"):
            await self._claims.take(tenant, request, undone=tool.effect == "transactional")
        outcome = await self._recorded(asked)
        await self._records.stored()
        if outcome.fault is not None:
            raise StepFailed(outcome.fault)
        return outcome.output

    async def _found_out(self, asked: _Call) -> Any:
        """What an earlier attempt did, asked of whoever can look; a second call is never our guess."""
        tool = asked.tool
        if tool.reconcile is None:
            doubt = f"An earlier attempt may have called {tool.name}, and what became of it is not known."
            raise StepFailed(StepFault(IN_DOUBT, doubt))
        looking = msgspec.structs.replace(tool, call=tool.reconcile, input=None, output=None, wrapped=None)
        given = {"input": asked.input, "effect_key": asked.effect_key}
        outcome = await self._recorded(msgspec.structs.replace(asked, tool=looking, input=given))
        await self._records.stored()
        said = outcome.output if outcome.fault is None and isinstance(outcome.output, dict) else {}
        if said.get("done") is True and not schemas.faults(tool.output, said.get("output"), "output"):
            return said.get("output")
        if said.get("done") is False:
            raise StepFailed(StepFault(NOT_DONE, f"{tool.name} looked: it was not done.", retryable=True))
        why = outcome.fault.message if outcome.fault is not None else "its answer does not say"
        raise StepFailed(StepFault(IN_DOUBT, f"{tool.name} looked whether it was done and cannot tell: {why}"))

    async def try_out(self, test: ToolTest) -> ToolTestOutcome:
        """One call outside of any execution, for whoever writes a tool. What goes wrong is the answer."""
        try:
            loaded = tool_from_data(test.definition) if test.definition else builtin_tools().get(test.tool)
            tool = self._registered_tool(loaded) if test.definition and loaded else self._known(test.tool)
            execution = ExecutionId(f"test_{test.call_id}")
            site = CallSite(test.tenant_id, execution, "test", 1, tool.name, self._records.new_trace())
            key = f"{test.tenant_id}/test/{test.call_id}"
            asked = _Call(tool, site, _TEST, test.input, key, "test", _TEST_S, network=test.network, is_test=True)
            outcome = await self._recorded(asked)
            await self._records.stored()
        except Exception as error:  # noqa: BLE001 - the answer to a test is what went wrong
            return ToolTestOutcome(fault=fault_of(error), worker=self._records.worker)
        return ToolTestOutcome(
            output=outcome.output,
            fault=outcome.fault,
            logs=outcome.logs[:_PRINTED_CHARS_MAX],
            duration_ms=round(outcome.duration_s * 1000),
            backend=outcome.backend,
            isolation=outcome.isolation,
            profile_hash=outcome.profile_hash,
            worker=self._records.worker,
        )

    async def close(self) -> None:
        await self._sandboxes.close()
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
        return host(loaded, folder=self._folder, operator=self._registered)

    async def _permit(self, tool: HostedTool, authorities: tuple[Grants, ...]) -> Permit:
        """Compiled once for each tool and set of authorities: what they say is all that a profile depends on."""
        key = tool.name, tool.digest, authorities
        found = self._permits.get(key)
        if found is None:
            found = self._permits[key] = await permit(tool, self._sandboxes, authorities)
            if len(self._permits) > _PERMITS_KEPT:
                self._permits.popitem(last=False)
        return found

    async def _recorded(self, asked: _Call) -> SandboxOutcome:
        """The call and its record, which is noted even where the call is cancelled or never began."""
        tool = asked.tool
        started_at_ms, began_s = self._clock.now_ms(), self._clock.monotonic_s()
        doors: list[Door] = []
        authorities = (tool.operator, *self._authorities.of(asked.site.tenant_id, asked.workflow))
        permitted, outcome = None, None
        fault = StepFault("cancelled", "The call was given up before it ended.")
        try:
            permitted = await self._permit(tool, authorities)
            outcome = await self._checked(asked, permitted, doors)
        except AgentFlowError as error:
            fault = StepFault(error.code, _told(error), error.retryable)
        except Exception as error:  # noqa: BLE001 - whatever it was, the call is on record and the step fails with it
            fault = fault_of(error)
        finally:
            if outcome is None:
                profile = permitted.profile if permitted else self._refused(tool, authorities)
                outcome = _never_ran(profile, fault)
            counts = doors[0].counts if doors else {"allowed": 0, "denied": 0}
            took_s = self._clock.monotonic_s() - began_s
            micro = tool_price(tool.dollars_per_call, tool.dollars_per_second, round(took_s * 1000))
            if permitted is None or (outcome.fault is not None and outcome.fault.code == _INPUT_INVALID):
                micro = 0  # refused before it began
            asked.usage.append(Usage(f"tool {tool.name}", micro))
            self._records.note(
                ToolCallRecord(
                    site=asked.site,
                    call_id=self._records.new_id(),
                    worker=self._records.worker,
                    tool_version=tool.version,
                    tool_digest=tool.digest,
                    backend=outcome.backend,
                    isolation=outcome.isolation,
                    profile_hash=outcome.profile_hash,
                    effect=tool.effect,
                    effect_key=asked.effect_key,
                    started_at_ms=started_at_ms,
                    duration_ms=round(took_s * 1000),
                    cpu_ms=round(outcome.cpu_s * 1000),
                    max_rss_bytes=outcome.max_rss_bytes,
                    **_sizes(asked.input, outcome),
                    exit_code=outcome.exit_code,
                    fault=outcome.fault,
                    arguments=redacted(asked.input, secrets=self._secrets(tool)),
                    layers=outcome.layers,
                    workspace_digest=outcome.workspace_digest,
                    egress_allowed=counts["allowed"],
                    egress_denied=counts["denied"],
                    cost_dollars=micro / MICRODOLLARS,
                )
            )
            self._log(asked.site, tool, outcome)
        return outcome

    async def _checked(self, asked: _Call, permitted: Permit, doors: list[Door]) -> SandboxOutcome:
        tool = asked.tool
        wrong = schemas.faults(tool.input, asked.input, "input")
        if wrong:
            unfit = f"The input does not fit {tool.name} {tool.version}: {wrong}."
            return _never_ran(permitted.profile, StepFault(_INPUT_INVALID, unfit))
        outcome = await self._run(asked, permitted, doors)
        if outcome.fault is None:
            wrong = schemas.faults(tool.output, outcome.output, "output")
            if wrong:
                fault = StepFault("tool_output_invalid", f"The output does not fit its schema: {wrong}.")
                return msgspec.structs.replace(outcome, output=None, fault=fault)
        return outcome

    async def _run(self, asked: _Call, permitted: Permit, doors: list[Door]) -> SandboxOutcome:
        tool, site = asked.tool, asked.site
        workspace: Workspace | None = None
        async with contextlib.AsyncExitStack() as stack:
            if permitted.has_workspace:
                workspace = await stack.enter_async_context(self._workspace(asked))
            if permitted.grants and asked.network:
                allowed = Allowance(site, permitted.grants, tool.credentials)
                doors.append(await stack.enter_async_context(self._egress.door(allowed)))
            call = ToolCall(
                call=tool.call,
                path=tool.path,
                input=tool.given(asked.input),
                execution_id=site.execution_id,
                step=asked.step,
                attempt=site.attempt,
                effect_key=asked.effect_key,
                tenant=site.tenant_id,
                workspace=workspace.path if workspace is not None else None,
                egress=doors[0].path if doors else None,
                trusted=self._egress.authority_pem if doors and tool.credentials else None,
            )
            running = permitted.sandbox.run(call, permitted.profile)
            outcome = await (workspace.bounded(running) if workspace is not None else running)
        if workspace is not None:
            return msgspec.structs.replace(outcome, workspace_digest=workspace.left and workspace.left.digest)
        return outcome

    @contextlib.asynccontextmanager
    async def _workspace(self, asked: _Call) -> AsyncIterator[Workspace]:
        """What the call leaves there is told with the step's result, also where it was cut short."""
        if asked.is_test:
            async with self._workspaces.passing() as passing:
                yield passing
            return
        opening = self._workspaces.opened(asked.site, within_s=asked.patience_s, known=asked.workspace)
        workspace: Workspace | None = None
        try:
            async with opening as workspace:
                yield workspace
        finally:
            if workspace is not None and workspace.left is not None:
                asked.left.append(workspace.left)

    def _refused(self, tool: HostedTool, authorities: tuple[Grants, ...]) -> ExecProfile:
        return refused_profile(backend_of(tool, self._sandboxes, authorities))

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


def _never_ran(profile: ExecProfile, fault: StepFault) -> SandboxOutcome:
    return SandboxOutcome(
        isolation=profile.isolation,
        profile_hash=profile_hash(profile),
        duration_s=0.0,
        fault=fault,
        backend=profile.backend,
    )


def _told(error: AgentFlowError) -> str:
    """A refusal with every part of it: whoever reads the step's fault sees what is missing and who can give it."""
    problems = [f"{problem.message} {problem.hint}".strip() for problem in getattr(error, "problems", ())]
    return " ".join([error.message, *problems, error.hint])


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
