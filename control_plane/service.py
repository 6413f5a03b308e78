"""What can be asked of the control plane, whatever the way in: REST and gRPC only translate to this.

Joins the registry, the orchestrator and the read side; owns no rule of its own beyond their order.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Protocol

import msgspec

from agentflow.artifacts.claim_check import ClaimCheck
from agentflow.canonical import ensure_canonical, sha256_hex
from agentflow.contracts.tool_questions import ToolTest, ToolTestOutcome
from agentflow.errors import Bug, Conflict, Invalid, Problem
from agentflow.execution import messages
from agentflow.execution.moving import Adoption, Misfit, kinds
from agentflow.execution.state import ExecutionState
from agentflow.ids import ExecutionId, StepPath, TenantId
from agentflow.limits import CHILDREN_FOLLOWED_MAX, FORK_EVENTS_MAX
from agentflow.ports import ArtifactStore, Shelf, StoredEvent, VersionConflict
from agentflow.workflow.load import read
from agentflow.workflow.references import child_workflows, tools_named
from control_plane.audit.log import AuditLog
from control_plane.audit.notes import concerning
from control_plane.audit.trail import Trail
from control_plane.costs.book import BudgetBook, Standing
from control_plane.costs.budget import Budget
from control_plane.costs.purse import Purse
from control_plane.costs.report import Costs
from control_plane.deploying import Deployments, register_within_quota
from control_plane.estimating import Estimates
from control_plane.identity.identity import Identity
from control_plane.identity.principals import Principal
from control_plane.jobs.job import Job
from control_plane.jobs.runner import Jobs
from control_plane.live.feed import Feed
from control_plane.orchestrator.forking import ForkWanted, parting
from control_plane.orchestrator.moves import CannotMove, MoveWanted, judged
from control_plane.orchestrator.orchestrator import ExecutionNotFound, Orchestrator
from control_plane.pausing import Pausing
from control_plane.registry.agents import LiveAgents
from control_plane.registry.executions import ExecutionFilter, ExecutionPages
from control_plane.registry.plans import PlanStep
from control_plane.registry.schemas import compile_schema, input_problems
from control_plane.registry.tasks import OpenTask, TaskPlace
from control_plane.registry.tools import RegisteredTool, ToolRegistry
from control_plane.registry.workflows import InvalidInput, RegisteredWorkflow, WorkflowRegistry
from control_plane.replaying import Replays
from control_plane.schedules.book import ScheduleBook
from control_plane.snapshots.book import Snapshots
from control_plane.snapshots.snapshot import Snapshot
from control_plane.traces import Traces


class ExecutionQueries(ExecutionPages, Protocol):
    """The read side of executions: lists, never the state a decision is made from."""

    async def count(self, tenant: TenantId, wanted: ExecutionFilter) -> int:
        """Never more than `limits.LIST_COUNT_MAX`, which then means at least so many."""
        ...


class EventLog(Protocol):
    async def read(
        self, tenant: TenantId, execution: ExecutionId, *, after_version: int = 0, limit: int | None = None
    ) -> Sequence[StoredEvent]: ...


class Plans(Protocol):
    async def steps(
        self, tenant: TenantId, execution: ExecutionId, *, after_number: int = 0, limit: int
    ) -> Sequence[PlanStep]:
        """In the order in which they were first asked for."""
        ...


class TaskQueries(Protocol):
    """What waits for people, over all executions of a tenant."""

    async def list_open(
        self, tenant: TenantId, *, after: TaskPlace | None = None, limit: int, newest_first: bool = False
    ) -> Sequence[OpenTask]: ...

    async def count_open(self, tenant: TenantId) -> int: ...


class Reservation(msgspec.Struct, frozen=True):
    """What a key stands for: the request as it was first sent, and the id of what it makes."""

    body_hash: str
    resource: str


class RequestKeys(Protocol):
    async def reserve(self, tenant: TenantId, operation: str, key: str, wanted: Reservation) -> Reservation:
        """Durable when it returns. What the key stands for: `wanted`, or what was reserved for it before."""
        ...


class KeyReused(Conflict):
    code = "AF1219"

    def __init__(self, key: str) -> None:
        super().__init__(
            f"The idempotency key {key!r} was used before, for another request.",
            hint="Send the same request as before to get its execution, or choose a new key.",
        )


class InvalidAnswer(Invalid):
    code = "AF1218"

    def __init__(self, path: str, problems: Sequence[Problem]) -> None:
        super().__init__(
            f"The answer does not fit the form of the task `{path}`. The task is still open.",
            hint="Correct the places named; `af executions show` shows the form.",
            problems=problems,
        )


# What a person may say about a step of which nobody can tell whether it was done.
DOUBT_FORM: dict[str, Any] = {
    "type": "object",
    "required": ["resolution"],
    "properties": {
        "resolution": {"enum": ["done", "retry", "fail"]},
        "output": {"description": "What the step would have answered; only with `done`."},
        "reason": {"type": "string", "maxLength": 1000},
    },
    "additionalProperties": False,
}


class StartOptions(msgspec.Struct, frozen=True):
    """When an execution may begin, and before whom among those that wait."""

    priority: int = 0
    not_before_ms: int | None = None


AT_ONCE = StartOptions()
_MOVES_TRIED = 5  # an execution that moves on faster than it can be looked at is left alone


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """How this deployment is set up, as `af status` tells it."""

    version: str
    mode: Literal["dev", "prod"]
    store: Literal["sqlite", "postgresql"]
    encrypted_fields: bool
    store_tls: bool
    bus_local: bool
    bus_tls: bool
    tls: bool
    client_certificates: bool
    oidc: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlPlane:
    identity: Identity
    trail: Trail
    audit: AuditLog
    costs: Costs
    budgets: BudgetBook
    estimates: Estimates
    purse: Purse
    registry: WorkflowRegistry
    tools: ToolRegistry
    ask_worker: Callable[[ToolTest], Awaitable[ToolTestOutcome]]
    orchestrator: Orchestrator
    executions: ExecutionQueries
    events: EventLog
    tasks: TaskQueries
    agents: LiveAgents
    claims: ClaimCheck
    artifacts: ArtifactStore
    parts_ready: Callable[[], Awaitable[dict[str, bool]]]
    new_request_id: Callable[[], str]
    now_ms: Callable[[], int]
    request_keys: RequestKeys
    schedules: ScheduleBook
    live: Feed
    plans: Plans
    jobs: Jobs
    replays: Replays
    deployments: Deployments
    traces: Traces
    snapshots: Snapshots
    pausing: Pausing
    setup: Setup

    async def register(
        self, tenant: TenantId, text: str, *, newest: str | None = None
    ) -> tuple[RegisteredWorkflow, bool]:
        """The workflow, and whether it is new; refused where the tenant's quota is full."""
        return await register_within_quota(self.identity.tenants, self.registry, tenant, text, newest=newest)

    async def require_allowed(self, caller: Principal, reference: str) -> None:
        """Whether the roles of whoever starts it allow this workflow, and every tool that it and its children name."""
        if caller.authority.workflows is None and caller.authority.tools is None:
            return
        rest, seen = [reference], set[str]()
        while rest and len(seen) < CHILDREN_FOLLOWED_MAX:
            workflow = await self.registry.find(caller.tenant, rest.pop())
            if workflow.id in seen:
                continue
            if not seen:
                caller.require_workflow(workflow.name)
            seen.add(workflow.id)
            for tool in sorted(tools_named(workflow.definition)):
                caller.require_tool(tool)
            rest += [child for child, _ in child_workflows(workflow.definition)]

    async def execute(
        self,
        tenant: TenantId,
        reference: str,
        input: Any,
        *,
        wait_s: float | None = None,
        key: str | None = None,
        how: StartOptions = AT_ONCE,
        reserved: ExecutionId | None = None,
    ) -> ExecutionState:
        """Start an execution once its input is proven good; with `wait_s`, its newest state after that long at most.

        A request with the same `key` gives the same execution, however often it is sent. Who made the id itself, so
        that one cause has one start, gives it as `reserved`.
        """
        workflow = await self.registry.find(tenant, reference)
        ensure_canonical(input)  # what has no canonical form could never be sent to an agent
        self.registry.check_input(workflow, input)
        await self.identity.tenants.admit_execution(tenant)
        if key is not None:
            reserved = await self._reserved(tenant, key, reference, input, how)
        state = await self.orchestrator.start(
            tenant,
            await self.registry.ref(tenant, workflow),
            input,
            timeout_ms=workflow.timeout_ms,
            reserved=reserved,
            priority=how.priority,
            not_before_ms=how.not_before_ms,
            workflow_max=workflow.concurrency,
        )
        if wait_s is None:
            return state
        return await self.orchestrator.wait(tenant, state.execution, lambda newer: newer.ended, within_s=wait_s)

    async def fork(
        self, tenant: TenantId, execution: ExecutionId, wanted: ForkWanted, *, request: str, key: str | None = None
    ) -> ExecutionState:
        """Start an execution with what another one has recorded up to a place. The other one is only read."""
        original = await self.orchestrator.state(tenant, execution)
        if original.workflow is None:
            raise Bug(f"Execution {execution} has no workflow.")
        for given in wanted.edited:
            ensure_canonical(getattr(wanted, given))
        workflow = await self.registry.find(tenant, original.workflow.id)
        await self.identity.tenants.admit_execution(tenant)
        fork = self.orchestrator.new_id()
        if key is not None:
            body = {"execution": execution, "wanted": msgspec.to_builtins(wanted)}
            fork = ExecutionId(await self.id_for(tenant, "fork", key, body, fork))
        stored = await self.events.read(tenant, execution, limit=FORK_EVENTS_MAX + 1)
        return await self.orchestrator.fork(
            original,
            await parting(
                original,
                [one.event for one in stored],
                wanted,
                fork,
                claims=self.claims,
                artifacts=self.artifacts,
                ancestors=await self._ancestors(original),
            ),
            execution=fork,
            request=request,
            timeout_ms=workflow.timeout_ms,
            workflow_max=workflow.concurrency,
        )

    async def _ancestors(self, state: ExecutionState) -> list[ExecutionId]:
        """Whose fork an execution is, and whose that one is, as far as they are still there."""
        found: list[ExecutionId] = []
        while state.forked is not None:
            try:
                state = await self.orchestrator.state(state.tenant, state.forked.execution)
            except ExecutionNotFound:
                break
            found.append(state.execution)
        return found

    async def judge_move(self, state: ExecutionState, wanted: MoveWanted) -> Adoption:
        """What stands in the way of moving an execution to another version, as it is now."""
        if state.workflow is None:
            raise Bug(f"Execution {state.execution} has no workflow.")
        current = await self.registry.program(state.tenant, state.workflow)
        found = judged(state, current, await self.registry.program(state.tenant, wanted.workflow), wanted)
        try:
            workflow = await self.registry.find(state.tenant, wanted.workflow.id)
            self.registry.check_input(workflow, await self.whole(state, state.input))
        except InvalidInput as error:
            refused = tuple(Misfit(f"The version does not take it: {it.message}", key=it.path) for it in error.problems)
            return msgspec.structs.replace(found, misfits=(*found.misfits, *refused))
        return found

    async def move(
        self, tenant: TenantId, execution: ExecutionId, wanted: MoveWanted, *, request: str
    ) -> ExecutionState:
        """Pin an execution to another version from here on. Raises `CannotMove`, and then nothing has changed.

        One that goes on meanwhile is judged again where it then stands.
        """
        state = await self.orchestrator.state(tenant, execution)
        for _ in range(_MOVES_TRIED):
            if request in state.seen:
                return state
            found = await self.judge_move(state, wanted)
            if found.misfits:
                raise CannotMove(execution, wanted.workflow.version, found.misfits)
            stands = kinds(state, await self.registry.program(tenant, state.workflow or wanted.workflow))
            ask = partial(wanted.message, request=request, stands=stands)
            try:
                return await self.orchestrator.request(tenant, execution, ask, only_at=state.version)
            except Conflict as conflict:
                if conflict.code != VersionConflict.code:  # by its code: another replica may have found it out
                    raise
            state = await self.orchestrator.state(tenant, execution)
        raise VersionConflict(execution, state.version)

    async def _reserved(self, tenant: TenantId, key: str, reference: str, input: Any, how: StartOptions) -> ExecutionId:
        """The id for a keyed start, fixed before anything begins: whoever is first, or comes again, starts that one."""
        body = {"workflow": reference, "input": input, **({"priority": how.priority} if how.priority else {})}
        return ExecutionId(await self.id_for(tenant, "execute", key, body, self.orchestrator.new_id()))

    async def id_for(self, tenant: TenantId, operation: str, key: str | None, body: Any, new: str) -> str:
        """The id of what a request makes: `new`, or the one that its key was first given for."""
        if key is None:
            return new
        wanted = Reservation(sha256_hex(body), new)
        reserved = await self.request_keys.reserve(tenant, operation, key, wanted)
        if reserved.body_hash != wanted.body_hash:
            raise KeyReused(key)
        return reserved.resource

    async def take_snapshot(self, state: ExecutionState, version: int | None, key: str | None) -> tuple[Snapshot, bool]:
        """The snapshot of an execution at a version, or as it stands now, and whether it is new.

        Sent again with its key, `now` is what it was at first.
        """
        await self.identity.tenants.admit_storage(state.tenant)
        body = {"execution": state.execution, "version": version}
        wanted = await self.id_for(state.tenant, "snapshot", key, body, str(version or state.version))
        return await self.snapshots.take(state.tenant, state.execution, int(wanted))

    async def submit(self, tenant: TenantId, kind: str, request: dict[str, Any], key: str | None) -> Job:
        """A long operation, once for a key."""
        job = await self.id_for(tenant, kind, key, request, self.jobs.new_id())
        return await self.jobs.submit(tenant, kind, request, id=job)

    async def create_budget(self, tenant: TenantId, wanted: dict[str, Any], key: str | None) -> Standing:
        """Once for a key."""
        budget = await self.id_for(tenant, "budget", key, wanted, f"bud_{self.new_request_id()}")
        return await self.budgets.create(Budget(tenant=tenant, id=budget, created_at_ms=self.now_ms(), **wanted))

    async def check_start(self, tenant: TenantId, reference: str, input: Any) -> None:
        """Raises what keeps an execution from being started, as things are now."""
        ensure_canonical(input)
        self.registry.check_input(await self.registry.find(tenant, reference), input)

    async def start_reserved(self, tenant: TenantId, reference: str, input: Any, execution: ExecutionId) -> None:
        """Start the one execution that a cause has; a second time it is only looked at."""
        await self.execute(tenant, reference, input, reserved=execution)

    async def trigger(self, tenant: TenantId, schedule: str, key: str | None) -> ExecutionId:
        """Let a schedule fire by hand: once for a key."""
        found = await self.schedules.find(tenant, schedule)
        new = self.orchestrator.new_id()
        execution = ExecutionId(await self.id_for(tenant, "trigger", key, {"schedule": found.id}, new))
        await self.start_reserved(tenant, found.workflow, found.input, execution)
        await self.schedules.fired_by_hand(tenant, schedule, execution)
        return execution

    async def answer(self, tenant: TenantId, execution: ExecutionId, path: StepPath, answer: Any) -> ExecutionState:
        """Answer an open task of an execution, once the answer fits the task's form."""
        ensure_canonical(answer)
        state = await self.orchestrator.state(tenant, execution)
        opened = state.tasks.get(path)
        form = None if opened is None else opened.task.get("form")
        if path in state.doubts:
            form = DOUBT_FORM
        if form is not None and (problems := input_problems(compile_schema(form), answer)):
            raise InvalidAnswer(path, problems)
        return await self.orchestrator.request(
            tenant, execution, lambda stamp: messages.TaskAnswered(stamp, path, answer)
        )

    async def tool_warnings(self, tenant: TenantId, source: str) -> list[Problem]:
        """What may be wrong with how a registered workflow uses tools: a worker may still know better."""
        loaded = read(source).loaded
        if loaded is None:
            return []
        _, doubtful = await self.registry.tool_problems(tenant, loaded.document)
        return doubtful

    async def test_tool(self, tenant: TenantId, tool: RegisteredTool, input: Any, *, network: bool) -> dict[str, Any]:
        """One call on some worker, outside of any execution. Raises `NoWorkerForTools` where none answers."""
        ensure_canonical(input)
        concerning("tool", f"{tool.name}@{tool.version}", digest=tool.digest)
        test = ToolTest(
            tenant_id=tenant,
            tool=tool.name,
            input=input,
            call_id=self.new_request_id(),
            definition=None if tool.builtin else tool.definition,
            network=network,
        )
        outcome: dict[str, Any] = msgspec.to_builtins(await self.ask_worker(test))
        outcome.pop("v")
        return outcome

    async def whole(self, state: ExecutionState, value: Any) -> Any:
        """Something of an execution as people see it: large values in their places, structs as plain data."""
        return await self.claims.whole(Shelf(state.tenant, state.execution), value)
