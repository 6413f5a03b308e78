"""/api/v1/tasks: what waits for people, over all executions. Answered at the execution that asks."""

from typing import Annotated, Any

from fastapi import Depends, Response

from agentflow.clock import rfc3339
from agentflow.ids import ExecutionId, StepPath
from agentflow.ports import Shelf
from control_plane.api import schemas
from control_plane.api.answers import answer, documented
from control_plane.api.guard import guarded_router, needs
from control_plane.api.listing import Listing, Page
from control_plane.api.request import Behind, Tenant
from control_plane.identity.permissions import Permission
from control_plane.registry.tasks import OpenTask, TaskPlace

router = guarded_router(prefix="/api/v1/tasks", tags=["tasks"])

_LISTED = Listing(filters={}, sorts=("opened_at",), default_sort="opened_at")


@router.get("", responses=documented(422, ok=schemas.TaskList), openapi_extra=_LISTED.openapi())
@needs(Permission.EXECUTIONS_READ)
async def list_tasks(behind: Behind, tenant: Tenant, page: Annotated[Page, Depends(_LISTED)]) -> Response:
    """Whoever waits longest comes first."""
    after = None if page.after is None else _place(*page.after)
    found = await behind.tasks.list_open(tenant, after=after, limit=page.limit + 1, newest_first=page.descending)
    shown = found[: page.limit]
    last = shown[-1].place if len(found) > len(shown) else None
    items = [await behind.claims.whole(Shelf(tenant, task.execution), task_view(task)) for task in shown]
    return answer(page.answer(items, last, total=await behind.tasks.count_open(tenant)))


def task_view(task: OpenTask) -> dict[str, Any]:
    return {
        "execution": task.execution,
        "path": task.path,
        "workflow": task.workflow,
        "opened_at": rfc3339(task.opened_at_ms),
        "task": task.task,
    }


def _place(opened_at_ms: int, execution: str, path: str) -> TaskPlace:
    return opened_at_ms, ExecutionId(execution), StepPath(path)
