"""/api/v1/audit: who did what, as each tenant's chain has it, and signed checkpoints of where the chain ends."""

from typing import Annotated, Any

import msgspec
from fastapi import Depends, Response
from pydantic import Field

from agentflow.limits import LIST_COUNT_MAX
from control_plane.api import schemas
from control_plane.api.answers import answer, documented
from control_plane.api.guard import guarded_router, needs
from control_plane.api.listing import Filter, Listing, Page, moment, one_of
from control_plane.api.request import Behind, Tenant
from control_plane.audit.log import AuditFilter
from control_plane.identity.permissions import Permission

router = guarded_router(prefix="/api/v1/audit", tags=["audit"])

_LISTED = Listing(
    filters={
        "actor": Filter("The id of who did it: a person, a service account or a worker."),
        "action": Filter("What was done, such as `executions.cancel` or `tools.call`."),
        "resource_type": Filter("What kind of thing it was done to, such as `execution`."),
        "resource": Filter("What it was done to: an id, or a name."),
        "outcome": one_of("done", "failed", "denied", "allowed", "closed"),
        "since": moment("Done at this moment or later."),
        "until": moment("Done before this moment."),
    },
    sorts=("seq",),
    default_sort="-seq",
)
_EXAMPLE = {
    "items": [
        {
            "seq": 2,
            "prev_hash": "5f0d…",
            "hash": "a91c…",
            "record": {
                "id": "aud_01M7PQ5AGEY1PSSZ6FSFKW43VC",
                "tenant": "default",
                "at": "2026-11-18T06:57:57.262Z",
                "actor": {"kind": "person", "id": "usr_01M7PPHY0D1V3PZJ4N6DYTE77R"},
                "action": "executions.cancel",
                "resource": {"type": "execution", "id": "exec_01M7PPHY108SW54TWTEPKXR9AZ"},
                "outcome": "done",
                "details": {"permission": "executions.control"},
            },
        }
    ],
    "next_cursor": "WyIyIl0",
    "total_count": 1,
}


class Named(schemas.Shape):
    kind: str
    id: str


class Thing(schemas.Shape):
    type: str
    id: str


class Record(schemas.Shape):
    id: str
    tenant: str
    at: str
    actor: Named
    action: str
    resource: Thing
    outcome: str
    details: dict[str, Any]


class Link(schemas.Shape):
    seq: int = Field(description="Its place in the tenant's chain, from 1 on without a gap.")
    prev_hash: str
    hash: str = Field(description="SHA-256 of the canonical JSON of `prev_hash`, `record` and `seq`.")
    record: Record


class LinkList(schemas.ListShape):
    items: list[Link]


class CheckpointAnswer(schemas.Shape):
    tenant: str
    size: int
    head: str
    at: str
    key: dict[str, str] = Field(description="The public half of the key that signed it, as a JWK.")
    signature: str


@router.get("", responses=documented(422, ok=LinkList, example=_EXAMPLE), openapi_extra=_LISTED.openapi())
@needs(Permission.AUDIT_READ)
async def list_audit(behind: Behind, tenant: Tenant, page: Annotated[Page, Depends(_LISTED)]) -> Response:
    """The newest first. A record has its place within a second of what it tells of."""
    wanted = _filter(page)
    after = None if page.after is None else int(page.after[0])
    found = await behind.audit.links.page(
        tenant, wanted, limit=page.limit + 1, after=after, newest_first=page.descending
    )
    shown = found[: page.limit]
    last = (shown[-1].seq,) if len(found) > len(shown) else None
    total = await behind.audit.links.count(tenant, wanted)
    items = [msgspec.to_builtins(link) for link in shown]
    return answer(page.answer(items, last, total=total, exact=total < LIST_COUNT_MAX))


@router.get("/checkpoint", responses=documented(ok=CheckpointAnswer))
@needs(Permission.AUDIT_READ)
async def checkpoint(behind: Behind, tenant: Tenant) -> Response:
    """Keep it where nobody can change it: later it shows whether the chain still has everything it had now."""
    return answer(msgspec.to_builtins(await behind.audit.checkpoint(tenant)), headers={"Cache-Control": "no-store"})


def _filter(page: Page) -> AuditFilter:
    given = dict(page.filters)
    outcome = given.pop("outcome", None)
    since, until = given.pop("since", None), given.pop("until", None)
    return AuditFilter(**given, outcomes=outcome, since_ms=since, until_ms=until)
