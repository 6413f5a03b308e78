"""/api/v1/users, /service-accounts, /roles and /api-keys: who there is in a tenant, and what they may do."""

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

from fastapi import Depends, Response
from pydantic import BaseModel, ConfigDict, Field

from agentflow.clock import rfc3339
from agentflow.limits import PASSWORD_CHARS_MAX
from control_plane.api import schemas
from control_plane.api.answers import documented
from control_plane.api.guard import guarded_router, needs
from control_plane.api.listing import Filter, Listing, Page, flag, keyed
from control_plane.api.request import Behind, Caller, IdempotencyKey
from control_plane.identity.api_keys import new_id
from control_plane.identity.directory import Directory, UserChange
from control_plane.identity.people import ApiKey, Person
from control_plane.identity.permissions import Permission, Role
from control_plane.identity.principals import Principal

router = guarded_router(prefix="/api/v1", tags=["identity"])

_Name = Annotated[str, Field(min_length=1, max_length=128)]
_RoleNames = Annotated[list[_Name], Field(max_length=100, description="Names or ids.")]
_Password = Annotated[str, Field(max_length=PASSWORD_CHARS_MAX, description="12 characters or more.")]
_Pattern = Annotated[str, Field(min_length=1, max_length=256)]


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class NewUser(Body):
    email: Annotated[
        str, Field(min_length=3, max_length=320, pattern=r"^[^@\s]+@[^@\s]+$", examples=["mara@example.com"])
    ]
    name: Annotated[str, Field(max_length=128)] = ""
    password: _Password | None = Field(default=None, description="Without one: by OpenID Connect only.")
    roles: _RoleNames = []


class NewServiceAccount(Body):
    name: _Name
    roles: _RoleNames = []


class ChangedUser(Body):
    """What is left out stays."""

    name: _Name | None = None
    password: _Password | None = None
    disabled: bool | None = None
    roles: _RoleNames | None = None


class Policies(Body):
    workflows: list[_Pattern] | None = Field(default=None, description="Workflows that may be executed; null: any.")


class RoleBody(Body):
    permissions: list[Permission] = Field(max_length=100)
    allowed_tools: list[_Pattern] = Field(default=["*"], description="Patterns such as `kb.*`.")
    policies: Policies = Policies()


class NewRole(RoleBody):
    name: _Name


class NewApiKey(Body):
    name: _Name
    scopes: list[Permission] | None = Field(default=None, description="Permissions it is limited to; null: all.")
    expires_in_s: int | None = Field(default=None, ge=60, le=10 * 365 * 86400, description="null: until revoked.")
    user: str | None = Field(default=None, description="Whose; your own by default.")


class UserAnswer(schemas.Shape):
    id: str
    kind: Literal["person", "service"]
    name: str
    email: str | None
    roles: list[str]
    disabled: bool
    created_at: str


class UserList(schemas.ListShape):
    items: list[UserAnswer]


class RoleAnswer(schemas.Shape):
    id: str
    name: str
    built_in: bool
    permissions: list[Permission]
    allowed_tools: list[str]
    policies: Policies


class RoleList(schemas.ListShape):
    items: list[RoleAnswer]


class KeyAnswer(schemas.Shape):
    id: str
    name: str
    user: str
    scopes: list[str] | None
    created_at: str
    expires_at: str | None
    revoked_at: str | None


class KeyList(schemas.ListShape):
    items: list[KeyAnswer]


class MadeKey(KeyAnswer):
    key: str | None = Field(description="The whole key, shown this once; null where the request was sent before.")


def _directory(behind: Behind) -> Directory:
    return behind.identity.directory


_ROLE = Filter("Who have this role, by its name or id.")
_DISABLED = flag("Whether they are shut out.")
_USERS = Listing(
    filters={"email": Filter("Their mail address."), "role": _ROLE, "disabled": _DISABLED},
    sorts=("created_at", "email"),
    default_sort="created_at",
)
_ACCOUNTS = Listing(
    filters={"name": Filter("Its name."), "role": _ROLE, "disabled": _DISABLED},
    sorts=("created_at", "name"),
    default_sort="created_at",
)
_ROLES = Listing(
    filters={"name": Filter("Its name."), "built_in": flag("Whether it comes with every tenant.")},
    sorts=("name",),
    default_sort="name",
)
_KEYS = Listing(
    filters={
        "name": Filter("Its name."),
        "user": Filter("Whose they are."),
        "revoked": flag("Whether they were revoked."),
    },
    sorts=("created_at", "name"),
    default_sort="created_at",
)


@router.get("/users", responses=documented(422, ok=UserList), openapi_extra=_USERS.openapi())
@needs(Permission.USERS_READ)
async def list_users(behind: Behind, caller: Caller, page: Annotated[Page, Depends(_USERS)]) -> dict[str, Any]:
    found = await _directory(behind).users(caller, kind="person")
    return _people(page, found, email=lambda one: one.email)


@router.post("/users", status_code=201, responses=documented(404, 409, 413, 422, ok={201: UserAnswer}))
@needs(Permission.USERS_WRITE)
async def add_user(body: NewUser, behind: Behind, caller: Caller, key: IdempotencyKey = None) -> dict[str, Any]:
    directory = _directory(behind)
    asked = body.model_dump(exclude={"password"})  # what is kept of a request may not help anybody to guess it
    made_id = await behind.id_for(caller.tenant, "users.add", key, asked, directory.new_id("usr"))
    person = await directory.add_person(
        caller, id=made_id, email=body.email, name=body.name, password=body.password, roles=body.roles
    )
    return person_view(person)


@router.get("/users/{user}", responses=documented(404, ok=UserAnswer))
@needs(Permission.USERS_READ)
async def show_user(user: str, behind: Behind, caller: Caller) -> dict[str, Any]:
    return person_view(await _directory(behind).user(caller, user))


@router.patch("/users/{user}", responses=documented(404, 409, 413, 422, ok=UserAnswer))
@needs(Permission.USERS_WRITE)
async def change_user(user: str, body: ChangedUser, behind: Behind, caller: Caller) -> dict[str, Any]:
    """Rename, set a password (which ends all tokens), disable, or bind to roles."""
    return person_view(await _changed(_directory(behind), caller, user, body))


@router.get("/service-accounts", responses=documented(422, ok=UserList), openapi_extra=_ACCOUNTS.openapi())
@needs(Permission.USERS_READ)
async def list_service_accounts(
    behind: Behind, caller: Caller, page: Annotated[Page, Depends(_ACCOUNTS)]
) -> dict[str, Any]:
    found = await _directory(behind).users(caller, kind="service")
    return _people(page, found, name=lambda one: one.name)


@router.post("/service-accounts", status_code=201, responses=documented(404, 409, 413, 422, ok={201: UserAnswer}))
@needs(Permission.USERS_WRITE)
async def add_service_account(
    body: NewServiceAccount, behind: Behind, caller: Caller, key: IdempotencyKey = None
) -> dict[str, Any]:
    directory = _directory(behind)
    new = directory.new_id("svc")
    made_id = await behind.id_for(caller.tenant, "service-accounts.add", key, body.model_dump(), new)
    return person_view(await directory.add_service_account(caller, id=made_id, name=body.name, roles=body.roles))


@router.get("/roles", responses=documented(422, ok=RoleList), openapi_extra=_ROLES.openapi())
@needs(Permission.ROLES_READ)
async def list_roles(behind: Behind, caller: Caller, page: Annotated[Page, Depends(_ROLES)]) -> dict[str, Any]:
    name, built_in = page.filters.get("name"), page.filters.get("built_in")
    fitting = [
        role
        for role in await _directory(behind).roles(caller)
        if name in (None, role.name) and built_in in (None, role.built_in)
    ]
    shown, last = keyed(page, fitting, lambda role: (role.name, role.id))
    return page.answer([role_view(role) for role in shown], last, total=len(fitting))


@router.post("/roles", status_code=201, responses=documented(409, 413, 422, ok={201: RoleAnswer}))
@needs(Permission.ROLES_WRITE)
async def add_role(body: NewRole, behind: Behind, caller: Caller, key: IdempotencyKey = None) -> dict[str, Any]:
    directory = _directory(behind)
    asked = body.model_dump(mode="json")
    made_id = await behind.id_for(caller.tenant, "roles.add", key, asked, directory.new_id("role"))
    return role_view(await directory.add_role(caller, _role(body, body.name, made_id)))


@router.get("/roles/{role}", responses=documented(404, ok=RoleAnswer))
@needs(Permission.ROLES_READ)
async def show_role(role: str, behind: Behind, caller: Caller) -> dict[str, Any]:
    return role_view(await _directory(behind).role(caller, role))


@router.put("/roles/{role}", responses=documented(404, 409, 413, 422, ok=RoleAnswer))
@needs(Permission.ROLES_WRITE)
async def change_role(role: str, body: RoleBody, behind: Behind, caller: Caller) -> dict[str, Any]:
    return role_view(await _directory(behind).change_role(caller, role, _role(body, role)))


@router.delete("/roles/{role}", status_code=204, responses=documented(404, 409, ok={}))
@needs(Permission.ROLES_WRITE)
async def remove_role(role: str, behind: Behind, caller: Caller) -> Response:
    await _directory(behind).remove_role(caller, role)
    return Response(status_code=204)


@router.get("/api-keys", responses=documented(422, ok=KeyList), openapi_extra=_KEYS.openapi())
@needs(Permission.SELF)
async def list_keys(behind: Behind, caller: Caller, page: Annotated[Page, Depends(_KEYS)]) -> dict[str, Any]:
    """Your own; everybody's for who may see users. Of a key's secret nothing is ever shown again."""
    name, revoked = page.filters.get("name"), page.filters.get("revoked")
    fitting = [
        key
        for key in await _directory(behind).keys(caller, page.filters.get("user"))
        if name in (None, key.name) and revoked in (None, key.revoked_at_ms is not None)
    ]
    shown, last = keyed(page, fitting, lambda key: (key.name if page.sort == "name" else key.created_at_ms, key.id))
    return page.answer([key_view(key) for key in shown], last, total=len(fitting))


@router.post("/api-keys", status_code=201, responses=documented(404, 409, 413, 422, ok={201: MadeKey}))
@needs(Permission.SELF)
async def add_key(
    body: NewApiKey, response: Response, behind: Behind, caller: Caller, sent: IdempotencyKey = None
) -> dict[str, Any]:
    """Make a key. The answer is the only place where it is ever shown.

    The same request with the same `Idempotency-Key` makes no other, and shows the key without its secret: whoever lost
    the first answer revokes it and makes another.
    """
    asked = {**body.model_dump(mode="json"), "by": caller.id}
    made_id = await behind.id_for(caller.tenant, "api-keys.add", sent, asked, new_id())
    key, made = await _directory(behind).add_key(
        caller, id=made_id, user=body.user, name=body.name, scopes=body.scopes, ttl_s=body.expires_in_s
    )
    response.headers["Cache-Control"] = "no-store"
    return {**key_view(key), "key": None if made is None else made.text}


@router.delete("/api-keys/{key}", status_code=204, responses=documented(404, ok={}))
@needs(Permission.SELF)
async def revoke_key(key: str, behind: Behind, caller: Caller) -> Response:
    await _directory(behind).revoke_key(caller, key)
    return Response(status_code=204)


async def _changed(directory: Directory, caller: Principal, user: str, body: ChangedUser) -> Person:
    roles = None if body.roles is None else tuple(body.roles)
    change = UserChange(name=body.name, password=body.password, disabled=body.disabled, roles=roles)
    return await directory.change_user(caller, user, change)


def _people(page: Page, found: Sequence[Person], **by: Callable[[Person], str | None]) -> dict[str, Any]:
    """A page of those that fit; `by` is the one field that they are filtered and sorted by beside what all have."""
    ((field, read),) = by.items()
    wanted, role, disabled = (page.filters.get(name) for name in (field, "role", "disabled"))
    fitting = [
        one
        for one in found
        if (wanted is None or wanted.casefold() == (read(one) or "").casefold())
        and (role is None or any(role in (held.id, held.name) for held in one.roles))
        and disabled in (None, one.disabled_at_ms is not None)
    ]
    shown, last = keyed(page, fitting, lambda one: (read(one) if page.sort == field else one.created_at_ms, one.id))
    return page.answer([person_view(one) for one in shown], last, total=len(fitting))


def _role(body: RoleBody, name: str, id: str = "") -> Role:
    return Role(
        id=id,
        name=name,
        permissions=frozenset(body.permissions),
        tools=None if "*" in body.allowed_tools else tuple(body.allowed_tools),
        workflows=None if body.policies.workflows is None else tuple(body.policies.workflows),
    )


def person_view(person: Person) -> dict[str, Any]:
    return {
        "id": person.id,
        "kind": person.kind,
        "name": person.name,
        "email": person.email,
        "roles": [role.name for role in person.roles],
        "disabled": person.disabled_at_ms is not None,
        "created_at": rfc3339(person.created_at_ms),
    }


def role_view(role: Role) -> dict[str, Any]:
    return {
        "id": role.id,
        "name": role.name,
        "built_in": role.built_in,
        "permissions": sorted(role.permissions),
        "allowed_tools": ["*"] if role.tools is None else list(role.tools),
        "policies": {"workflows": None if role.workflows is None else list(role.workflows)},
    }


def key_view(key: ApiKey) -> dict[str, Any]:
    return {
        "id": key.id,
        "name": key.name,
        "user": key.user,
        "scopes": None if key.scopes is None else list(key.scopes),
        "created_at": rfc3339(key.created_at_ms),
        "expires_at": None if key.expires_at_ms is None else rfc3339(key.expires_at_ms),
        "revoked_at": None if key.revoked_at_ms is None else rfc3339(key.revoked_at_ms),
    }
