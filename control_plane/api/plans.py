"""/api/v1/plans: what an execution will probably cost, before it is started."""

from typing import Any

from fastapi import Response
from pydantic import Field

from agentflow.contracts.usage import dollars_text
from control_plane.api import schemas
from control_plane.api.answers import answer, documented
from control_plane.api.guard import guarded_router, needs
from control_plane.api.request import Behind, Tenant
from control_plane.costs.estimate import Basis, Figure
from control_plane.identity.permissions import Permission

router = guarded_router(prefix="/api/v1/plans", tags=["workflows"])


class Dollars(schemas.Shape):
    """Exact to a millionth; null where nobody can tell."""

    expected: str | None
    upper: str | None = Field(description="Not exceeded in 19 of 20 cases, or the bound of the plan.")
    observations: int = Field(description="That it rests on.")


class Count(schemas.Shape):
    expected: float | None
    upper: float | None
    observations: int


class PlannedStep(schemas.Shape):
    """`dollars`, `tokens` and `duration_ms` are of one run of the step."""

    name: str
    agent: str
    tool: str | None
    basis: Basis = Field(description="Of the dollars: its own runs, its agent's or tool's elsewhere, or its price.")
    runs: Count = Field(description="How often it begins in one execution.")
    dollars: Dollars
    tokens: Count
    duration_ms: Count


class Unpriced(schemas.Shape):
    name: str
    reason: str


class Estimate(schemas.Shape):
    plan: str
    workflow: schemas.ListedWorkflow
    executions: int = Field(description="Completed ones that it is calibrated by.")
    dollars: Dollars = Field(description="Of one execution, without what is `unknown`.")
    tokens: Count
    steps_run: Count
    duration_ms: Count
    steps: list[PlannedStep]
    unknown: list[Unpriced] = Field(description="What the dollars leave out. Empty: they are complete.")


_EXAMPLE = {
    "plan": "2f6c0a1b9d3e4f5061728394a5b6c7d8e9f00112233445566778899aabbccdde",
    "workflow": {"id": "wf_01JD3ZJ4W3E5V8Q2N7M0K1T9XA", "name": "support", "version": "1.0.0"},
    "executions": 30,
    "dollars": {"expected": "0.002100", "upper": "0.004200", "observations": 30},
    "tokens": {"expected": 1260.0, "upper": 2520.0, "observations": 30},
    "steps_run": {"expected": 1.0, "upper": 1.0, "observations": 30},
    "duration_ms": {"expected": 812.4, "upper": 1310.0, "observations": 30},
    "steps": [
        {
            "name": "classify",
            "agent": "classifier",
            "tool": None,
            "basis": "step",
            "runs": {"expected": 1.0, "upper": 1.0, "observations": 30},
            "dollars": {"expected": "0.002100", "upper": "0.004200", "observations": 30},
            "tokens": {"expected": 1260.0, "upper": 2520.0, "observations": 30},
            "duration_ms": {"expected": 790.1, "upper": 1288.0, "observations": 30},
        }
    ],
    "unknown": [],
}


@router.get("/{plan}/estimate", responses=documented(404, ok=Estimate, example=_EXAMPLE))
@needs(Permission.WORKFLOWS_READ)
async def estimate(plan: str, behind: Behind, tenant: Tenant) -> Response:
    """By the hash of a plan, or by a workflow's id, name or name@version: what the next execution will probably cost.

    Calibrated by the newest completed executions; a hash is looked for among the versions registered last.
    """
    workflow, static, found = await behind.estimates.estimate(tenant, plan)
    told = {
        "plan": static.plan_hash,
        "workflow": {"id": workflow.id, "name": workflow.name, "version": workflow.version},
        "executions": found.executions,
        "dollars": _dollars(found.microdollars),
        "tokens": _count(found.tokens),
        "steps_run": _count(found.runs),
        "duration_ms": _count(found.duration_ms),
        "steps": [
            {
                "name": step.name,
                "agent": step.agent,
                "tool": step.tool,
                "basis": step.basis,
                "runs": _count(step.runs),
                "dollars": _dollars(step.microdollars),
                "tokens": _count(step.tokens),
                "duration_ms": _count(step.duration_ms),
            }
            for step in found.steps
        ],
        "unknown": [{"name": one.name, "reason": one.reason} for one in found.unknown],
    }
    return answer(told)


def _dollars(figure: Figure) -> dict[str, Any]:
    return {
        "expected": None if figure.expected is None else dollars_text(round(figure.expected)),
        "upper": None if figure.upper is None else dollars_text(round(figure.upper)),
        "observations": figure.observations,
    }


def _count(figure: Figure) -> dict[str, Any]:
    return {"expected": figure.expected, "upper": figure.upper, "observations": figure.observations}
