"""/api/v1/users, /service-accounts, /roles and /api-keys: who there is in a tenant, and what they may do."""

from typing import Annotated, Any, Literal

from fastapi import Query, Response
from pydantic import BaseModel, ConfigDict, Field

from agentflow.clock import rfc3339
from agentflow.limits import PASSWORD_CHARS_MAX
from control_plane.api import schemas
from control_plane.api.answers import documented
from control_plane.api.guard import guarded_router, needs
from control_plane.api.request import Behind, Caller
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
    email: Annotated[str, Field(min_length=3, max_length=320, pattern=r"^[^@\s]+@[^@\s]+$")]
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


class UserList(schemas.Shape):
    items: list[UserAnswer]
    total_count: int


class RoleAnswer(schemas.Shape):
    id: str
    name: str
    built_in: bool
    permissions: list[Permission]
    allowed_tools: list[str]
    policies: Policies


class RoleList(schemas.Shape):
    items: list[RoleAnswer]
    total_count: int


class KeyAnswer(schemas.Shape):
    id: str
    name: str
    user: str
    scopes: list[str] | None
    created_at: str
    expires_at: str | None
    revoked_at: str | None


class KeyList(schemas.Shape):
    items: list[KeyAnswer]
    total_count: int


class MadeKey(KeyAnswer):
    key: str = Field(description="The whole key, shown this once.")


def _directory(behind: Behind) -> Directory:
    return behind.identity.directory


@router.get("/users", responses=documented(ok=UserList))
@needs(Permission.USERS_READ)
async def list_users(behind: Behind, caller: Caller) -> dict[str, Any]:
    return _listed([person_view(one) for one in await _directory(behind).users(caller, kind="person")])


@router.post("/users", status_code=201, responses=documented(404, 409, 413, 422, ok={201: UserAnswer}))
@needs(Permission.USERS_WRITE)
async def add_user(body: NewUser, behind: Behind, caller: Caller) -> dict[str, Any]:
    person = await _directory(behind).add_person(
        caller, email=body.email, name=body.name, password=body.password, roles=body.roles
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


@router.get("/service-accounts", responses=documented(ok=UserList))
@needs(Permission.USERS_READ)
async def list_service_accounts(behind: Behind, caller: Caller) -> dict[str, Any]:
    return _listed([person_view(one) for one in await _directory(behind).users(caller, kind="service")])


@router.post("/service-accounts", status_code=201, responses=documented(404, 413, 422, ok={201: UserAnswer}))
@needs(Permission.USERS_WRITE)
async def add_service_account(body: NewServiceAccount, behind: Behind, caller: Caller) -> dict[str, Any]:
    account = await _directory(behind).add_service_account(caller, name=body.name, roles=body.roles)
    return person_view(account)


@router.get("/roles", responses=documented(ok=RoleList))
@needs(Permission.ROLES_READ)
async def list_roles(behind: Behind, caller: Caller) -> dict[str, Any]:
    return _listed([role_view(role) for role in await _directory(behind).roles(caller)])


@router.post("/roles", status_code=201, responses=documented(409, 413, 422, ok={201: RoleAnswer}))
@needs(Permission.ROLES_WRITE)
async def add_role(body: NewRole, behind: Behind, caller: Caller) -> dict[str, Any]:
    return role_view(await _directory(behind).add_role(caller, _role(body, body.name)))


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


@router.get("/api-keys", responses=documented(422, ok=KeyList))
@needs(Permission.SELF)
async def list_keys(
    behind: Behind, caller: Caller, user: Annotated[str | None, Query(max_length=128)] = None
) -> dict[str, Any]:
    """Your own; everybody's for who may see users. Of a key's secret nothing is ever shown again."""
    return _listed([key_view(key) for key in await _directory(behind).keys(caller, user)])


@router.post("/api-keys", status_code=201, responses=documented(404, 413, 422, ok={201: MadeKey}))
@needs(Permission.SELF)
async def add_key(body: NewApiKey, response: Response, behind: Behind, caller: Caller) -> dict[str, Any]:
    """Make a key. The answer is the only place where it is ever shown."""
    key, made = await _directory(behind).add_key(
        caller, user=body.user, name=body.name, scopes=body.scopes, ttl_s=body.expires_in_s
    )
    response.headers["Cache-Control"] = "no-store"
    return {**key_view(key), "key": made.text}


@router.delete("/api-keys/{key}", status_code=204, responses=documented(404, ok={}))
@needs(Permission.SELF)
async def revoke_key(key: str, behind: Behind, caller: Caller) -> Response:
    await _directory(behind).revoke_key(caller, key)
    return Response(status_code=204)


async def _changed(directory: Directory, caller: Principal, user: str, body: ChangedUser) -> Person:
    roles = None if body.roles is None else tuple(body.roles)
    change = UserChange(name=body.name, password=body.password, disabled=body.disabled, roles=roles)
    return await directory.change_user(caller, user, change)


def _role(body: RoleBody, name: str) -> Role:
    return Role(
        id="",
        name=name,
        permissions=frozenset(body.permissions),
        tools=None if "*" in body.allowed_tools else tuple(body.allowed_tools),
        workflows=None if body.policies.workflows is None else tuple(body.policies.workflows),
    )


def _listed(items: list[dict[str, Any]]) -> dict[str, Any]:
    return {"items": items, "total_count": len(items)}


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
