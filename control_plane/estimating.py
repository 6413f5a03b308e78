"""Estimates of what a workflow's next execution costs, calibrated by the tenant's own: the newest that completed.

Reads what is on record when somebody asks, within bounds, and writes nothing; the arithmetic is `costs.estimate`.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import msgspec

from agentflow import limits
from agentflow.contracts.usage import tool_price
from agentflow.ids import ExecutionId, TenantId
from agentflow.ports import StoredEvent
from control_plane.costs.estimate import CostEstimate, ObservedRun, PlanCostModel, StepRun, Usage
from control_plane.registry.executions import ExecutionFilter, ExecutionPages
from control_plane.registry.plans import PlanStep as StepOnRecord
from control_plane.registry.plans import advance
from control_plane.registry.tools import ToolRegistry
from control_plane.registry.workflows import PlanNotFound, RegisteredWorkflow, WorkflowRegistry
from planners.plan import Plan

_HASH = re.compile(r"[0-9a-f]{64}")


class Observed(msgspec.Struct, frozen=True):
    """One observation of what a step used."""

    execution: ExecutionId
    path: str
    agent: str
    resource: str
    microdollars: int | None
    tokens: int

    @property
    def usage(self) -> Usage:
        if self.microdollars is None:
            return Usage(0, self.tokens, unpriced=(self.resource,))
        return Usage(self.microdollars, self.tokens, priced=True)


class Observations(Protocol):
    async def of(self, tenant: TenantId, executions: Sequence[ExecutionId], *, limit: int) -> Sequence[Observed]: ...

    async def newest(self, tenant: TenantId, *, limit: int) -> Sequence[Observed]: ...


class Record(Protocol):
    async def read(
        self, tenant: TenantId, execution: ExecutionId, *, after_version: int = 0, limit: int | None = None
    ) -> Sequence[StoredEvent]: ...


class Estimates:
    def __init__(
        self,
        *,
        registry: WorkflowRegistry,
        tools: ToolRegistry,
        executions: ExecutionPages,
        record: Record,
        observations: Observations,
    ) -> None:
        self._registry = registry
        self._tools = tools
        self._executions = executions
        self._record = record
        self._observations = observations

    async def estimate(self, tenant: TenantId, plan: str) -> tuple[RegisteredWorkflow, Plan, CostEstimate]:
        """Of a plan by its hash, or of the plan of a workflow's version. Raises `PlanNotFound`, `WorkflowNotFound`."""
        workflow = await self.workflow_of(tenant, plan)
        static = await self._registry.plan(tenant, workflow)
        model = PlanCostModel(
            elsewhere=await self._elsewhere(tenant), declared=await self._declared(tenant, static)
        ).calibrate(await self._runs(tenant, workflow))
        return workflow, static, model.estimate(static)

    async def workflow_of(self, tenant: TenantId, plan: str) -> RegisteredWorkflow:
        """The newest version with that plan, among the versions that were registered last."""
        if not _HASH.fullmatch(plan):
            return await self._registry.find(tenant, plan)
        for one in await self._registry.list(tenant, limit=limits.PLANS_CACHED_MAX):
            workflow = await self._registry.find(tenant, one.id)
            if (await self._registry.plan(tenant, workflow)).plan_hash == plan:
                return workflow
        raise PlanNotFound("any of the newest versions", plan)

    async def _runs(self, tenant: TenantId, workflow: RegisteredWorkflow) -> list[ObservedRun]:
        """Executions of this version; where none has completed yet, of the versions before it."""
        runs: list[ObservedRun] = []
        for wanted in (workflow.id, workflow.name):
            page = await self._executions.page(
                tenant,
                ExecutionFilter(workflow=wanted, statuses=("completed",)),
                limit=limits.ESTIMATE_EXECUTIONS,
                after=None,
                newest_first=True,
            )
            if page.items:
                ids = [one.id for one in page.items]
                found = await self._observations.of(tenant, ids, limit=limits.ESTIMATE_OBSERVATIONS)
                used = _by_run(found)
                runs = [
                    ObservedRun(one.ended_at_ms - one.started_at_ms, await self._steps(tenant, one.id, used))
                    for one in page.items
                    if one.ended_at_ms is not None
                ]
                break
        return runs

    async def _steps(
        self, tenant: TenantId, execution: ExecutionId, used: Mapping[tuple[ExecutionId, str], Usage]
    ) -> tuple[StepRun, ...]:
        stored = await self._record.read(tenant, execution, limit=limits.ESTIMATE_EVENTS)
        steps = advance({}, ((one.version, one.event) for one in stored)).values()
        return tuple(StepRun(step.name, _took_ms(step), used.get((execution, step.path))) for step in steps)

    async def _elsewhere(self, tenant: TenantId) -> dict[str, tuple[Usage, ...]]:
        runs: dict[tuple[str, ExecutionId, str], Usage] = {}
        for one in await self._observations.newest(tenant, limit=limits.ESTIMATE_OBSERVATIONS):
            for place in (one.agent, one.resource):
                key = (place, one.execution, one.path)
                runs[key] = runs.get(key, Usage()) + one.usage
        found: dict[str, list[Usage]] = defaultdict(list)
        for (place, _, _), usage in runs.items():
            found[place].append(usage)
        return {place: tuple(usages) for place, usages in found.items()}

    async def _declared(self, tenant: TenantId, plan: Plan) -> dict[str, int]:
        """What a call of each tool costs by its definition, for those that say so: with what it may take at most."""
        timeouts = {node.step.tool: node.step.timeout_ms for node in plan.nodes if node.step and node.step.tool}
        found: dict[str, int] = {}
        for name, tool in (await self._tools.known(tenant, sorted(timeouts))).items():
            cost = tool.spec.get("cost")
            if cost is not None:
                per_call, per_second = cost.get("dollars_per_call", 0.0), cost.get("dollars_per_second", 0.0)
                found[name] = tool_price(per_call, per_second, timeouts[name])
        return found


def _by_run(found: Iterable[Observed]) -> dict[tuple[ExecutionId, str], Usage]:
    used: dict[tuple[ExecutionId, str], Usage] = {}
    for one in found:
        used[one.execution, one.path] = used.get((one.execution, one.path), Usage()) + one.usage
    return used


def _took_ms(step: StepOnRecord) -> int | None:
    return None if step.ended_at_ms is None else step.ended_at_ms - step.scheduled_at_ms
