"""/api/v1/auth: credentials in, tokens out; who am I; and the keys that verify our tokens."""

from typing import Annotated, Any, Literal

from fastapi import Request, Response
from pydantic import BaseModel, ConfigDict, Field

from agentflow.clock import rfc3339
from agentflow.contracts.audit import Actor, Resource
from agentflow.ids import DEFAULT_TENANT, TenantId
from agentflow.limits import PASSWORD_CHARS_MAX, TOKEN_CHARS_MAX, TOKEN_TTL_S_MAX
from control_plane.api.answers import documented
from control_plane.api.guard import guarded_router, needs, public
from control_plane.api.request import Behind, Caller
from control_plane.audit.trail import Trail
from control_plane.identity.login import Login
from control_plane.identity.permissions import Permission
from control_plane.identity.principals import Principal
from control_plane.identity.tokens import Claims

router = guarded_router(tags=["auth"])

_Ttl = Annotated[int | None, Field(ge=60, le=TOKEN_TTL_S_MAX, description="How long the token is to be valid.")]


class PasswordGrant(BaseModel):
    model_config = ConfigDict(extra="forbid")

    grant_type: Literal["password"]
    email: str = Field(min_length=1, max_length=320)
    password: str = Field(min_length=1, max_length=PASSWORD_CHARS_MAX)
    tenant: str = Field(default=DEFAULT_TENANT, min_length=1, max_length=128)
    ttl_s: _Ttl = None


class ApiKeyGrant(BaseModel):
    model_config = ConfigDict(extra="forbid")

    grant_type: Literal["api_key"]
    api_key: str = Field(min_length=1, max_length=256)
    ttl_s: _Ttl = None


class OidcGrant(BaseModel):
    model_config = ConfigDict(extra="forbid")

    grant_type: Literal["oidc"]
    id_token: str = Field(min_length=1, max_length=TOKEN_CHARS_MAX, description="Of the issuer in AF_OIDC_ISSUER.")
    tenant: str = Field(default=DEFAULT_TENANT, min_length=1, max_length=128)
    ttl_s: _Ttl = None


class TokenAnswer(BaseModel):
    access_token: str
    token_type: Literal["Bearer"]
    expires_in: int
    expires_at: str
    tenant: str
    user: str


class CredentialShown(BaseModel):
    via: Literal["token", "api_key"]
    id: str
    expires_at: str | None


class Whoami(BaseModel):
    tenant: str
    user: str
    kind: Literal["person", "service"]
    name: str
    roles: list[str]
    permissions: list[Permission]
    allowed_tools: list[str]
    allowed_workflows: list[str]
    credential: CredentialShown


class Ended(BaseModel):
    ended: bool = Field(description="False for an API key: that is ended by revoking it.")


class Jwks(BaseModel):
    keys: list[dict[str, str]]


Grant = Annotated[PasswordGrant | ApiKeyGrant | OidcGrant, Field(discriminator="grant_type")]


@router.post("/api/v1/auth/token", responses=documented(413, 422, ok=TokenAnswer))
@public
async def token(grant: Grant, request: Request, response: Response, behind: Behind) -> dict[str, Any]:
    """Exchange a password, an API key or an ID token for a token that is sent with every request."""
    response.headers["Cache-Control"] = "no-store"
    source = request.client.host if request.client else "unknown"
    text, claims = await _granted(behind.identity.login, grant, source)
    await _record_login(behind.trail, claims, grant.grant_type)
    return token_view(text, claims)


async def _record_login(trail: Trail, claims: Claims, how: str) -> None:
    """Whoever asks is known only now, so no guard could begin the note."""
    actor = Actor("service" if claims.subject.startswith("svc_") else "person", claims.subject)
    details = {"grant_type": how, **({} if claims.key is None else {"credential": claims.key})}
    await trail.finish(trail.begin(claims.tenant, actor, "auth.token", Resource("token", claims.id), details))


async def _granted(login: Login, grant: Grant, source: str) -> tuple[str, Claims]:
    match grant:
        case PasswordGrant():
            tenant = TenantId(grant.tenant)
            return await login.by_password(tenant, grant.email, grant.password, source=source, ttl_s=grant.ttl_s)
        case ApiKeyGrant():
            return await login.by_key(grant.api_key, ttl_s=grant.ttl_s)
        case OidcGrant():
            return await login.by_outside_token(TenantId(grant.tenant), grant.id_token, ttl_s=grant.ttl_s)


@router.get("/api/v1/auth/whoami", responses=documented(ok=Whoami))
@needs(Permission.SELF)
async def whoami(caller: Caller) -> dict[str, Any]:
    return principal_view(caller)


@router.post("/api/v1/auth/logout", responses=documented(ok=Ended))
@needs(Permission.SELF)
async def logout(caller: Caller, behind: Behind) -> dict[str, Any]:
    """End the token this is asked with, everywhere. An API key stays as it is: revoke it instead."""
    ended = await behind.identity.login.logout(caller)
    if ended:
        await behind.identity.changed()
    return {"ended": ended}


@router.get("/.well-known/jwks.json", responses=documented(ok=Jwks))
@public
async def jwks(response: Response, behind: Behind) -> dict[str, Any]:
    """The public keys that verify our tokens, for whoever wants to check them too."""
    response.headers["Cache-Control"] = "public, max-age=300"
    return await behind.identity.signing_keys.jwks()


def token_view(text: str, claims: Claims) -> dict[str, Any]:
    return {
        "access_token": text,
        "token_type": "Bearer",
        "expires_in": claims.expires_at_s - int(claims.issued_at_s),
        "expires_at": rfc3339(claims.expires_at_s * 1000),
        "tenant": claims.tenant,
        "user": claims.subject,
    }


def principal_view(principal: Principal) -> dict[str, Any]:
    authority = principal.authority
    return {
        "tenant": principal.tenant,
        "user": principal.id,
        "kind": principal.kind,
        "name": principal.name,
        "roles": list(principal.roles),
        "permissions": sorted(authority.permissions),
        "allowed_tools": ["*"] if authority.tools is None else list(authority.tools),
        "allowed_workflows": ["*"] if authority.workflows is None else list(authority.workflows),
        "credential": {
            "via": principal.via,
            "id": principal.credential,
            "expires_at": None if principal.expires_at_ms is None else rfc3339(principal.expires_at_ms),
        },
    }
