"""/api/v1/schedules: executions that begin by the clock."""

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from fastapi import Depends, Response
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from agentflow import limits
from agentflow.clock import rfc3339
from agentflow.errors import Problem
from agentflow.workflow.durations import format_duration, parse_duration
from control_plane.api import schemas
from control_plane.api.answers import answer, documented
from control_plane.api.guard import guarded_router, needs
from control_plane.api.listing import Filter, Listing, Page, keyed, one_of
from control_plane.api.request import Behind, Caller, IdempotencyKey, Tenant
from control_plane.identity.permissions import Permission
from control_plane.schedules.schedule import Fire, InvalidSchedule, Schedule
from control_plane.schedules.times import Spec

router = guarded_router(prefix="/api/v1/schedules", tags=["schedules"])

_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$"
_EVERY_MS_MIN = 1_000  # a schedule is not a loop


class ScheduleBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str = Field(pattern=_NAME)
    workflow: str = Field(min_length=1, max_length=256, description="A name, name@version or id; resolved on firing.")
    input: Any = Field(default_factory=dict, description="The input of every execution.")
    cron: str | None = Field(default=None, max_length=256, description="Five fields, read in `timezone`.")
    every: str | None = Field(default=None, description="An interval such as `15m`.")
    offset: str = Field(default="0s", description="How much after whole multiples of `every` it fires.")
    timezone: str = Field(default="UTC", max_length=64)
    jitter: str = Field(default="0s", description="Start up to this much later, by chance.")
    overlap: Literal["skip", "queue", "allow"] = Field(
        default="skip", description="What a moment does while an earlier execution is under way."
    )
    catch_up: str = Field(default="1m", description="What was missed for no longer than this is made up for.")
    starts_at: AwareDatetime | None = None
    ends_at: AwareDatetime | None = None
    paused: bool = False


_LISTED = Listing(
    filters={"name": Filter("Its name."), "status": one_of("active", "paused", "over")},
    sorts=("name",),
    default_sort="name",
)


@router.post(
    "",
    status_code=201,
    responses=documented(404, 409, 413, 422, ok={201: schemas.Schedule, 200: schemas.Schedule}),
)
@needs(Permission.SCHEDULES_WRITE)
async def create(
    body: ScheduleBody, response: Response, behind: Behind, tenant: Tenant, caller: Caller
) -> dict[str, Any]:
    """The same again changes nothing and answers 200; another of the same name is refused."""
    await behind.require_allowed(caller, body.workflow)
    await behind.check_start(tenant, body.workflow, body.input)
    made, created = await behind.schedules.create(
        tenant, body.name, body.workflow, body.input, _spec(body), paused=body.paused
    )
    response.status_code = 201 if created else 200
    response.headers["Location"] = f"/api/v1/schedules/{made.name}"
    return schedule_view(made)


@router.get("", responses=documented(422, ok=schemas.ScheduleList), openapi_extra=_LISTED.openapi())
@needs(Permission.SCHEDULES_READ)
async def list_schedules(behind: Behind, tenant: Tenant, page: Annotated[Page, Depends(_LISTED)]) -> Response:
    name, statuses = page.filters.get("name"), page.filters.get("status")
    found = [
        schedule
        for schedule in await behind.schedules.list(tenant, limit=limits.LIST_COUNT_MAX)
        if (name is None or schedule.name == name) and (statuses is None or _status(schedule) in statuses)
    ]
    shown, last = keyed(page, found, lambda schedule: (schedule.name,))
    return answer(page.answer([schedule_view(schedule) for schedule in shown], last, total=len(found)))


@router.get("/{name}", responses=documented(404, ok=schemas.Schedule))
@needs(Permission.SCHEDULES_READ)
async def show(name: str, behind: Behind, tenant: Tenant) -> dict[str, Any]:
    return schedule_view(await behind.schedules.find(tenant, name))


@router.delete("/{name}", status_code=204, responses=documented(404, ok={}))
@needs(Permission.SCHEDULES_WRITE)
async def delete(name: str, behind: Behind, tenant: Tenant) -> None:
    """Executions that it has started go on."""
    await behind.schedules.remove(tenant, name)


@router.post("/{name}/pause", responses=documented(404, 409, ok=schemas.Schedule))
@needs(Permission.SCHEDULES_WRITE)
async def pause(name: str, behind: Behind, tenant: Tenant) -> dict[str, Any]:
    return schedule_view(await behind.schedules.pause(tenant, name))


@router.post("/{name}/resume", responses=documented(404, 409, ok=schemas.Schedule))
@needs(Permission.SCHEDULES_WRITE)
async def resume(name: str, behind: Behind, tenant: Tenant, caller: Caller) -> dict[str, Any]:
    await _require_allowed(behind, caller, name)
    return schedule_view(await behind.schedules.resume(tenant, name))


@router.post("/{name}/trigger", status_code=202, responses=documented(402, 404, 409, 422, ok={202: schemas.Triggered}))
@needs(Permission.SCHEDULES_WRITE)
async def trigger(
    name: str, behind: Behind, tenant: Tenant, caller: Caller, key: IdempotencyKey = None
) -> dict[str, Any]:
    """Start an execution now, beside its moments. A request with the same `Idempotency-Key` gives the same one."""
    await _require_allowed(behind, caller, name)
    return {"execution_id": await behind.trigger(tenant, name, key)}


async def _require_allowed(behind: Behind, caller: Caller, name: str) -> None:
    """Whoever lets a schedule start executions may start them themselves, whoever made it."""
    await behind.require_allowed(caller, (await behind.schedules.find(caller.tenant, name)).workflow)


def _spec(body: ScheduleBody) -> Spec:
    wrong: list[Problem] = []

    def duration(field: str, text: str, least_ms: int = 0) -> int:
        found = parse_duration(text)
        if found is None or not least_ms <= found <= limits.TIMEOUT_MS_MAX:
            hint = f"Use a duration of at least {format_duration(least_ms)} such as `90s`, `15m` or `1d`."
            wrong.append(Problem(f"`{text}` is no duration for this.", hint, path=field))
        return found or 0

    every_ms = None if body.every is None else duration("every", body.every, _EVERY_MS_MIN)
    spec = Spec(
        cron=body.cron,
        timezone=body.timezone,
        every_ms=every_ms,
        offset_ms=duration("offset", body.offset),
        jitter_ms=duration("jitter", body.jitter),
        starts_at_ms=_ms(body.starts_at),
        ends_at_ms=_ms(body.ends_at),
        overlap=body.overlap,
        catch_up_ms=duration("catch_up", body.catch_up),
    )
    if wrong:
        raise InvalidSchedule(body.name, wrong)
    return spec


def _ms(moment: datetime | None) -> int | None:
    return None if moment is None else round(moment.timestamp() * 1000)


def schedule_view(schedule: Schedule) -> dict[str, Any]:
    spec, progress = schedule.spec, schedule.progress
    return {
        "id": schedule.id,
        "name": schedule.name,
        "workflow": schedule.workflow,
        "input": schedule.input,
        "cron": spec.cron,
        "every": None if spec.every_ms is None else format_duration(spec.every_ms),
        "timezone": spec.timezone,
        "jitter": format_duration(spec.jitter_ms),
        "overlap": spec.overlap,
        "catch_up": format_duration(spec.catch_up_ms),
        "starts_at": _shown(spec.starts_at_ms),
        "ends_at": _shown(spec.ends_at_ms),
        "status": _status(schedule),
        "next_at": _shown(schedule.next_at_ms),
        "last_at": _shown(schedule.last_at_ms),
        "created_at": rfc3339(schedule.created_at_ms),
        "fired": progress.fired,
        "skipped": progress.skipped,
        "missed": progress.missed,
        "waiting": [rfc3339(at_ms) for at_ms in progress.waiting],
        "recent": [_fire_view(fire) for fire in progress.recent],
    }


def _status(schedule: Schedule) -> str:
    if schedule.paused_at_ms is not None:
        return "paused"
    return "active" if schedule.next_at_ms is not None or schedule.progress.waiting else "over"


def _fire_view(fire: Fire) -> dict[str, Any]:
    view: dict[str, Any] = {"execution": None, "reason": "", **msgspec.to_builtins(fire)}
    view["at"] = rfc3339(view.pop("at_ms"))
    return view


def _shown(at_ms: int | None) -> str | None:
    return None if at_ms is None else rfc3339(at_ms)
