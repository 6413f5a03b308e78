"""No route without a permission: who asks is proved and their right checked before anything of a request is read.

A route is declared on a `guarded_router`, its function with `@needs(permission)` or `@public`; without either the
application cannot be made, and `ensure_guarded` finds a route that came past it. The principal stays with the request:
`principal_of`, or the dependencies in `control_plane.api.request`.
"""

import asyncio
import functools
import inspect
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import aclosing, suppress
from typing import Any, TypeVar, cast

import structlog
from fastapi import APIRouter, FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute, APIWebSocketRoute, iter_route_contexts
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response, StreamingResponse
from starlette.websockets import WebSocket

from agentflow.contracts.audit import Actor, Resource
from agentflow.errors import AgentFlowError, Bug, Forbidden
from control_plane.api.belongings import owner_of, told_of
from control_plane.api.errors import answer_to, malformed, problem_response
from control_plane.audit.notes import Note, noting
from control_plane.identity.authentication import Authenticator
from control_plane.identity.identity import credential_of
from control_plane.identity.permissions import Permission
from control_plane.identity.principals import Principal
from control_plane.identity.rates import Standing, TooOften
from control_plane.identity.staying import loss_of, while_allowed
from control_plane.service import ControlPlane

_Endpoint = TypeVar("_Endpoint", bound=Callable[..., Any])
_DECLARED = "__agentflow_permission__"
_PUBLIC = "public"
_PRINCIPAL = "agentflow.principal"
_STANDING = "agentflow.standing"
_READING = frozenset({"GET", "HEAD", "OPTIONS"})
_REFUSED_FROM = 400
_NOT_ALLOWED_ANY_MORE = 1008  # a WebSocket's way to say "policy violation"


def needs(permission: Permission) -> Callable[[_Endpoint], _Endpoint]:
    """Directly above the function, below the route: only a principal with this permission gets in."""

    def declare(endpoint: _Endpoint) -> _Endpoint:
        if any(parameter.annotation is WebSocket for parameter in inspect.signature(endpoint).parameters.values()):
            endpoint = cast(_Endpoint, _guarded_socket(endpoint, permission))
        setattr(endpoint, _DECLARED, permission)
        return endpoint

    return declare


def public(endpoint: _Endpoint) -> _Endpoint:
    """For whoever asks, known or not."""
    setattr(endpoint, _DECLARED, _PUBLIC)
    return endpoint


async def authenticated(request: HTTPConnection) -> Principal:
    """Whoever asks, once they have proved to be that. Raises `Unauthenticated`."""
    authenticator, presented = _presented(request)
    principal = authenticator.recall(presented) or await authenticator.authenticate(presented)
    request.scope[_PRINCIPAL] = principal
    return principal


async def authorised(request: HTTPConnection, permission: Permission) -> Principal:
    """Whoever asks, once they have proved to have this right. Raises `Unauthenticated` or `Forbidden`."""
    principal = await authenticated(request)
    principal.require(permission)
    return principal


def _presented(request: HTTPConnection) -> tuple[Authenticator, str]:
    authenticator = cast(ControlPlane, request.app.state.control_plane).identity.authenticator
    return authenticator, credential_of(request.headers.get("authorization"))


async def counted(request: HTTPConnection, principal: Principal) -> None:
    """One request more of this principal. Raises `TooOften`; where they stand is told with whatever is answered."""
    rates = cast(ControlPlane, request.app.state.control_plane).identity.rates
    request.scope[_STANDING] = await rates.take(principal.tenant, principal.id)


def with_standing(request: HTTPConnection, answer: Response, error: AgentFlowError | None = None) -> Response:
    standing = error.standing if isinstance(error, TooOften) else request.scope.get(_STANDING)
    if isinstance(standing, Standing):
        answer.headers.update(standing.headers())
    return answer


async def refusal(request: HTTPConnection, path: str, error: AgentFlowError) -> Response:
    """The answer to a request that failed; `path` as its route declares it."""
    principal = request.scope.get(_PRINCIPAL)
    if isinstance(principal, Principal):
        plane = cast(ControlPlane, request.app.state.control_plane)
        error = await told_of(error, path, request.path_params, plane, principal)
    return with_standing(request, answer_to(error), error)


def principal_of(request: HTTPConnection) -> Principal:
    principal = request.scope.get(_PRINCIPAL)
    if not isinstance(principal, Principal):
        raise Bug("A public route asked who its caller is.")
    return principal


class GuardedRoute(APIRoute):
    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        needed = _declared(self.endpoint, self.path)
        if needed is None:
            return handle
        permission = needed
        action = f"{self.tags[0]}.{self.name}"

        async def guarded(request: Request) -> Response:
            answer = await attended(request, permission, action, self.path, handle)
            if isinstance(answer, StreamingResponse):
                answer.body_iterator = _while_allowed(answer.body_iterator, request, permission)
            return answer

        return guarded


async def attended(
    request: Request, permission: Permission, action: str, path: str, handle: Callable[[Request], Awaitable[Response]]
) -> Response:
    """The answer to a request, with everything around it: who asks, how often, whether they may, what is on record.

    `path` is as its route declares it. Refused requests count like any other, so nobody can fill the record with them.
    """
    trail = cast(ControlPlane, request.app.state.control_plane).trail
    note: Note | None = None
    try:
        principal = await authenticated(request)
        await counted(request, principal)
        note = trail.begin(principal.tenant, *_told(request, principal, permission, action))
        principal.require(permission)
        if not changes(request.method, permission):
            return with_standing(request, await handle(request))
        with noting(note):
            answer = await handle(request)
        if answer.status_code < _REFUSED_FROM:
            await trail.finish(note)
        return with_standing(request, answer)
    except RequestValidationError as wrong:
        return await refusal(request, path, malformed(wrong.errors()))
    except AgentFlowError as error:
        if note is not None and isinstance(error, Forbidden):
            await trail.deny(note)
        elif note is not None:
            trail.given_up(note)
        return await refusal(request, path, error)


def changes(method: str, permission: Permission) -> bool:
    """Whether a request may change something, so that it must be on record."""
    return method not in _READING and not permission.endswith(".read")


def _told(
    request: Request, principal: Principal, permission: Permission, action: str
) -> tuple[Actor, str, Resource, dict[str, Any]]:
    """What the record of a request says. What people send stays out of it: it may hold what nobody should keep."""
    parameters = dict(request.path_params)
    details = {
        "request": structlog.contextvars.get_contextvars().get("request_id", ""),
        "permission": permission.value,
        "credential": principal.credential,
        **({"parameters": parameters} if parameters else {}),
    }
    named = str(next(iter(parameters.values()), ""))
    return (
        Actor(principal.kind, principal.id),
        action,
        Resource(action.partition(".")[0].removesuffix("s"), named),
        details,
    )


def guarded_router(*, prefix: str = "", tags: list[str] | None = None) -> APIRouter:
    return APIRouter(prefix=prefix, tags=list(tags or ()), route_class=GuardedRoute)


def permissions_of(app: FastAPI) -> dict[tuple[str, str], Permission | None]:
    """Every operation, as method and path, and what it needs; None for a public one. Raises `Bug` for any other."""
    found: dict[tuple[str, str], Permission | None] = {}
    for context in iter_route_contexts(app.routes):
        route, path = context.original_route, context.path or ""
        if not isinstance(route, GuardedRoute | APIWebSocketRoute):
            raise Bug(f"The route {path} is not guarded: declare it on a guarded_router.")
        if "{" in path and 422 in getattr(route, "responses", ()) and owner_of(path) is None:
            raise Bug(f"Nobody can tell whose {path} is: add how it is found to control_plane.api.belongings.")
        for method in context.methods or {"WEBSOCKET"}:
            found[method, path] = _declared(route.endpoint, path)
    return found


def ensure_guarded(app: FastAPI) -> None:
    permissions_of(app)


def _declared(endpoint: Callable[..., Any], path: str) -> Permission | None:
    declared = getattr(endpoint, _DECLARED, None)
    if declared == _PUBLIC:
        return None
    if not isinstance(declared, Permission):
        raise Bug(f"The route {path} says nothing about who may use it: add @needs(permission) or @public.")
    return declared


def _guarded_socket(endpoint: Callable[..., Any], permission: Permission) -> Callable[..., Any]:
    @functools.wraps(endpoint)
    async def guarded(*args: Any, **kwargs: Any) -> None:
        socket = next(value for value in (*args, *kwargs.values()) if isinstance(value, WebSocket))
        try:
            await counted(socket, await authorised(socket, permission))
        except AgentFlowError as error:
            await socket.send_denial_response(problem_response(error))
            return
        serving = asyncio.ensure_future(endpoint(*args, **kwargs))
        watching = asyncio.ensure_future(loss_of(*_presented(socket), permission))
        try:
            await asyncio.wait({serving, watching}, return_when=asyncio.FIRST_COMPLETED)
            if not serving.done():
                await socket.close(_NOT_ALLOWED_ANY_MORE, "log in again")
        finally:
            for one in (serving, watching):
                one.cancel()
            await asyncio.wait({serving, watching})
        if not serving.cancelled():
            serving.result()

    return guarded


async def _while_allowed(body: AsyncIterable[Any], request: Request, permission: Permission) -> AsyncIterator[Any]:
    """A stream without end, until whoever reads it may not any more: it ends, and the next request is told why."""
    async with (
        aclosing(cast(AsyncGenerator[Any, None], aiter(body))) as chunks,
        aclosing(while_allowed(chunks, *_presented(request), permission)) as watched,
    ):
        with suppress(AgentFlowError):
            async for chunk in watched:
                yield chunk
