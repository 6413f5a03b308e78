"""What an admin does about people, service accounts, roles and keys, and the rules that keep them honest.

Nobody gives away more than they have, nobody takes over whoever may do more than they, and a tenant always keeps an
admin. Whatever changes is told to `changed`, so that no control plane goes on believing what it proved before.
What is added has an id that its caller chose: adding it again under the same id gives what is there.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Literal, Protocol

import msgspec

from agentflow.clock import Clock
from agentflow.errors import Conflict, Forbidden, Invalid, NotFound
from agentflow.ids import TenantId, UlidSource
from control_plane.audit.notes import concerning
from control_plane.identity import api_keys
from control_plane.identity.api_keys import NewKey
from control_plane.identity.passwords import Passwords
from control_plane.identity.people import DEPLOYMENT_TENANT, ApiKey, Person
from control_plane.identity.permissions import BUILT_IN, Permission, Role, authority
from control_plane.identity.principals import Principal

_ADMIN = "admin"


class UserNotFound(NotFound):
    code = "AF1713"

    def __init__(self, user: str) -> None:
        super().__init__(f"There is no user {user!r} in this tenant.", hint="af users list")


class RoleNotFound(NotFound):
    code = "AF1714"

    def __init__(self, role: str) -> None:
        super().__init__(f"There is no role {role!r} in this tenant.", hint="af roles list")


class KeyNotFound(NotFound):
    code = "AF1715"

    def __init__(self, key: str) -> None:
        super().__init__(f"There is no API key {key!r} that you may see.", hint="af api-keys list")


class AlreadyThere(Conflict):
    code = "AF1716"

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} is there already.", hint="Choose another name, or change the one there is.")


class MoreThanYouHave(Forbidden):
    code = "AF1717"

    def __init__(self, missing: Sequence[str]) -> None:
        named = ", ".join(missing) if missing else "tools or workflows"
        super().__init__(
            f"This is about rights that you do not have yourself: {named}.",
            hint="Let somebody do it who has them.",
        )


class LastAdmin(Conflict):
    code = "AF1718"

    def __init__(self) -> None:
        super().__init__(
            "Nobody would be left who may manage this tenant.", hint="Give the role admin to somebody else first."
        )


class BuiltInRole(Conflict):
    code = "AF1719"

    def __init__(self, role: str) -> None:
        super().__init__(f"The role {role!r} is built in and stays as it is.", hint="Make a role of your own.")


class RoleInUse(Conflict):
    code = "AF1720"

    def __init__(self, role: str) -> None:
        super().__init__(f"Somebody still has the role {role!r}.", hint="Take it from them first: af users list")


class DirectoryStore(Protocol):
    """Everything within one tenant; what is of another is not there."""

    async def users(self, tenant: TenantId, *, kind: str) -> Sequence[Person]: ...

    async def person(self, tenant: TenantId, user: str) -> Person | None: ...

    async def add_user(self, person: Person, hashed_secret: str | None) -> bool:
        """With its roles. False where the id or mail address is taken."""
        ...

    async def change_user(self, person: Person, hashed_secret: str | None) -> None:
        """All of it, roles included; the password only where one is given."""
        ...

    async def roles(self, tenant: TenantId) -> Sequence[Role]: ...

    async def add_role(self, tenant: TenantId, role: Role) -> bool:
        """False where the name is taken."""
        ...

    async def change_role(self, tenant: TenantId, role: Role) -> None: ...

    async def remove_role(self, tenant: TenantId, role: str) -> bool:
        """False while somebody has it."""
        ...

    async def keys(self, tenant: TenantId, user: str | None) -> Sequence[ApiKey]: ...

    async def add_api_key(self, key: ApiKey, hashed_secret: str) -> bool:
        """False where the id is taken."""
        ...

    async def revoke_api_key(self, tenant: TenantId, key: str, now_ms: int) -> None: ...


class UserChange(msgspec.Struct, frozen=True):
    """What is None stays."""

    name: str | None = None
    password: str | None = None
    disabled: bool | None = None
    roles: tuple[str, ...] | None = None


class Directory:
    def __init__(
        self,
        *,
        store: DirectoryStore,
        passwords: Passwords,
        clock: Clock,
        ids: UlidSource,
        changed: Callable[[], Awaitable[None]],
    ) -> None:
        self._store = store
        self._passwords = passwords
        self._clock = clock
        self._ids = ids
        self._changed = changed

    def new_id(self, kind: Literal["usr", "svc", "role"]) -> str:
        return f"{kind}_{self._ids.ulid()}"

    async def users(self, actor: Principal, *, kind: str) -> Sequence[Person]:
        return await self._store.users(actor.tenant, kind=kind)

    async def user(self, actor: Principal, user: str) -> Person:
        person = await self._store.person(actor.tenant, user)
        if person is None:
            raise UserNotFound(user)
        return person

    async def add_person(
        self, actor: Principal, *, id: str, email: str, name: str, password: str | None, roles: Sequence[str]
    ) -> Person:
        """Without a password they can log in by OpenID Connect only."""
        hashed = None if password is None else await self._passwords.hashed(password)
        person = Person(
            tenant=actor.tenant,
            id=id,
            kind="person",
            name=name or email,
            email=email,
            created_at_ms=self._clock.now_ms(),
            roles=await self._grantable(actor, roles),
        )
        concerning("user", person.id, roles=[role.name for role in person.roles])
        if await self._store.add_user(person, hashed):
            return person
        if (before := await self._store.person(actor.tenant, id)) is None:
            raise AlreadyThere(f"A user with the address {email!r}")
        return before

    async def add_service_account(self, actor: Principal, *, id: str, name: str, roles: Sequence[str]) -> Person:
        account = Person(
            tenant=actor.tenant,
            id=id,
            kind="service",
            name=name,
            email=None,
            created_at_ms=self._clock.now_ms(),
            roles=await self._grantable(actor, roles),
        )
        concerning("service-account", account.id, roles=[role.name for role in account.roles])
        return account if await self._store.add_user(account, None) else await self.user(actor, id)

    async def change_user(self, actor: Principal, user: str, change: UserChange) -> Person:
        before = await self.user(actor, user)
        _require_no_more(actor, before.roles)
        if change.password is not None and before.kind != "person":
            raise Invalid("A service account has no password.", hint="Make an API key for it.")
        now_ms = self._clock.now_ms()
        hashed = None if change.password is None else await self._passwords.hashed(change.password)
        disabled = before.disabled_at_ms
        if change.disabled is not None:
            disabled = (disabled or now_ms) if change.disabled else None
        after = msgspec.structs.replace(
            before,
            name=change.name or before.name,
            disabled_at_ms=disabled,
            # Whoever knew the old password is out, and so is whoever is disabled, also once enabled again.
            tokens_after_ms=now_ms if change.password or change.disabled else before.tokens_after_ms,
            roles=before.roles if change.roles is None else await self._grantable(actor, change.roles),
        )
        if _manages(before) and not _manages(after):
            await self._require_another_admin(actor.tenant, besides=user)
        changed = {field: True for field in ("password", "disabled") if getattr(change, field) is not None}
        concerning("user", user, roles=[role.name for role in after.roles], **changed)
        await self._store.change_user(after, hashed)
        await self._changed()
        return after

    async def roles(self, actor: Principal) -> Sequence[Role]:
        return await self._store.roles(actor.tenant)

    async def role(self, actor: Principal, role: str) -> Role:
        found = next((one for one in await self._store.roles(actor.tenant) if role in (one.id, one.name)), None)
        if found is None:
            raise RoleNotFound(role)
        return found

    async def add_role(self, actor: Principal, role: Role) -> Role:
        _require_no_more(actor, (role,))
        made = msgspec.structs.replace(role, created_at_ms=self._clock.now_ms())
        concerning("role", made.id, name=role.name, permissions=sorted(role.permissions))
        if role.name not in BUILT_IN:
            if await self._store.add_role(actor.tenant, made):
                return made
            for before in await self._store.roles(actor.tenant):
                if before.id == made.id:
                    return before
        raise AlreadyThere(f"A role named {role.name!r}")

    async def change_role(self, actor: Principal, reference: str, role: Role) -> Role:
        before = await self.role(actor, reference)
        if before.built_in:
            raise BuiltInRole(before.name)
        _require_no_more(actor, (before, role))
        after = msgspec.structs.replace(role, id=before.id, name=before.name, created_at_ms=before.created_at_ms)
        concerning("role", after.id, name=after.name, permissions=sorted(after.permissions))
        await self._store.change_role(actor.tenant, after)
        await self._changed()
        return after

    async def remove_role(self, actor: Principal, reference: str) -> None:
        role = await self.role(actor, reference)
        if role.built_in:
            raise BuiltInRole(role.name)
        if not await self._store.remove_role(actor.tenant, role.id):
            raise RoleInUse(role.name)

    async def keys(self, actor: Principal, user: str | None) -> Sequence[ApiKey]:
        """One's own; those of all others for who may see users."""
        if not actor.authority.may(Permission.USERS_READ):
            user = actor.id if user in (None, actor.id) else ""
        return await self._store.keys(actor.tenant, user)

    async def add_key(
        self,
        actor: Principal,
        *,
        id: str,
        user: str | None,
        name: str,
        scopes: Sequence[str] | None,
        ttl_s: int | None,
    ) -> tuple[ApiKey, NewKey | None]:
        """For oneself, or for others by who manages users. It can never do more than its maker and its owner may.

        Without the whole key where it was there before: that is told once.
        """
        if user not in (None, actor.id):
            actor.require(Permission.USERS_WRITE)
        owner = await self.user(actor, user or actor.id)
        _require_no_more(actor, owner.roles, scopes)
        if scopes is not None:
            beyond = sorted(set(scopes) - actor.authority.permissions)
            if beyond:
                raise MoreThanYouHave(beyond)
        now_ms, made = self._clock.now_ms(), api_keys.new_key(id)
        key = ApiKey(
            id=made.id,
            tenant=actor.tenant,
            user=owner.id,
            name=name,
            created_at_ms=now_ms,
            expires_at_ms=None if ttl_s is None else now_ms + ttl_s * 1000,
            scopes=None if scopes is None else tuple(sorted(set(scopes))),
        )
        concerning("api-key", key.id, user=owner.id)
        if await self._store.add_api_key(key, made.hashed_secret):
            return key, made
        for before in await self._store.keys(actor.tenant, owner.id):
            if before.id == id:
                return before, None
        raise AlreadyThere(f"An API key {id}")

    async def revoke_key(self, actor: Principal, key_id: str) -> None:
        seen = await self.keys(actor, None)
        key = next((one for one in seen if one.id == key_id), None)
        if key is None:
            raise KeyNotFound(key_id)
        if key.user != actor.id:
            actor.require(Permission.USERS_WRITE)
        await self._store.revoke_api_key(actor.tenant, key_id, self._clock.now_ms())
        await self._changed()

    async def _grantable(self, actor: Principal, wanted: Sequence[str]) -> tuple[Role, ...]:
        there = await self._store.roles(actor.tenant)
        chosen: list[Role] = []
        for reference in dict.fromkeys(wanted):
            found = next((role for role in there if reference in (role.id, role.name)), None)
            if found is None:
                raise RoleNotFound(reference)
            chosen.append(found)
        _require_no_more(actor, chosen)
        return tuple(chosen)

    async def _require_another_admin(self, tenant: TenantId, *, besides: str) -> None:
        for kind in ("person", "service"):
            for one in await self._store.users(tenant, kind=kind):
                if one.id != besides and _manages(one):
                    return
        raise LastAdmin


def _manages(person: Person) -> bool:
    return person.disabled_at_ms is None and any(role.id == _ADMIN for role in person.roles)


def _require_no_more(actor: Principal, roles: Sequence[Role], scopes: Sequence[str] | None = None) -> None:
    """Whoever gives a role, or what `scopes` leave of it, or acts on somebody who has it, must have as much."""
    wanted = authority(roles, runs_the_deployment=actor.tenant == DEPLOYMENT_TENANT, scopes=scopes)
    missing = sorted(wanted.permissions - actor.authority.permissions)
    if missing:
        raise MoreThanYouHave(missing)
    for theirs, ours in (
        (wanted.tools, actor.authority.tools),
        (wanted.workflows, actor.authority.workflows),
    ):
        if ours is not None and (theirs is None or not set(theirs) <= set(ours)):
            raise MoreThanYouHave(())
