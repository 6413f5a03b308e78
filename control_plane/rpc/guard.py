"""The same guard for gRPC: every method is listed with its permission, and what is not listed is refused.

Who calls is proved from the metadata `authorization` before a request is decoded for its method. `caller` gives the
principal to the services.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any

import grpc

from agentflow.contracts.audit import Actor, Resource
from agentflow.errors import AgentFlowError, Bug
from control_plane.audit.notes import Note, noting
from control_plane.audit.trail import Trail
from control_plane.identity.identity import Identity, credential_of
from control_plane.identity.permissions import Permission
from control_plane.identity.principals import Principal
from control_plane.identity.staying import while_allowed
from control_plane.rpc.errors import answering, metadata_of, status_of

PERMISSIONS: dict[str, Permission] = {
    "/agentflow.v1.WorkflowService/Register": Permission.WORKFLOWS_WRITE,
    "/agentflow.v1.WorkflowService/Execute": Permission.WORKFLOWS_EXECUTE,
    "/agentflow.v1.WorkflowService/ExecuteStream": Permission.WORKFLOWS_EXECUTE,
    "/agentflow.v1.WorkflowService/Get": Permission.WORKFLOWS_READ,
    "/agentflow.v1.WorkflowService/List": Permission.WORKFLOWS_READ,
    "/agentflow.v1.WorkflowService/Signal": Permission.EXECUTIONS_CONTROL,
    "/agentflow.v1.WorkflowService/Cancel": Permission.EXECUTIONS_CONTROL,
    "/agentflow.v1.ExecutionService/Get": Permission.EXECUTIONS_READ,
    "/agentflow.v1.ExecutionService/List": Permission.EXECUTIONS_READ,
    "/agentflow.v1.ExecutionService/Watch": Permission.EXECUTIONS_READ,
    "/agentflow.v1.ExecutionService/Pause": Permission.EXECUTIONS_CONTROL,
    "/agentflow.v1.ExecutionService/Resume": Permission.EXECUTIONS_CONTROL,
    "/agentflow.v1.ExecutionService/Retry": Permission.EXECUTIONS_CONTROL,
    "/agentflow.v1.ToolService/Get": Permission.TOOLS_READ,
    "/agentflow.v1.ToolService/List": Permission.TOOLS_READ,
    "/agentflow.v1.ToolService/Test": Permission.TOOLS_TEST,
    "/agentflow.v1.AgentService/Get": Permission.AGENTS_READ,
    "/agentflow.v1.AgentService/List": Permission.AGENTS_READ,
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": Permission.SELF,
}
CHANGING = frozenset(
    method
    for method, permission in PERMISSIONS.items()
    if permission is not Permission.SELF and not permission.endswith(".read")
)
PUBLIC = frozenset({"/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch"})

_caller: ContextVar[Principal] = ContextVar("agentflow_caller")


def caller() -> Principal:
    """Whoever makes the call that is being answered."""
    principal = _caller.get(None)
    if principal is None:
        raise Bug("A method that is not guarded asked who its caller is.")
    return principal


class Guard(grpc.aio.ServerInterceptor):
    def __init__(self, identity: Identity, trail: Trail) -> None:
        self._identity = identity
        self._trail = trail

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable["grpc.RpcMethodHandler[Any, Any] | None"]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> "grpc.RpcMethodHandler[Any, Any] | None":
        method: str = handler_call_details.method
        handler = await continuation(handler_call_details)
        if handler is None or method in PUBLIC:
            return handler
        permission = PERMISSIONS.get(method)
        if permission is None:
            return _refusing(handler, Bug(f"The method {method} says nothing about who may call it."))
        note: Note | None = None
        try:
            presented = credential_of(_authorization(handler_call_details))
            principal = await self._identity.authenticator.authenticate(presented)
            await self._identity.rates.take(principal.tenant, principal.id)  # a refused call counts like any other
            note = self._noted(principal, permission, method)
            principal.require(permission)
        except AgentFlowError as error:
            if note is not None:
                await self._trail.deny(note)
            return _refusing(handler, error)
        allowed = partial(
            while_allowed, authenticator=self._identity.authenticator, presented=presented, permission=permission
        )
        return _answering_as(handler, principal, allowed, note if method in CHANGING else None, self._trail)

    def _noted(self, principal: Principal, permission: Permission, method: str) -> Note:
        action = _action(method, permission)
        details = {"permission": permission.value, "credential": principal.credential, "method": method}
        resource = Resource(action.partition(".")[0].removesuffix("s"), "")
        return self._trail.begin(principal.tenant, Actor(principal.kind, principal.id), action, resource, details)


def _action(method: str, permission: Permission) -> str:
    """As REST calls the same: `executions.cancel`, `workflows.execute`."""
    verb = method.rpartition("/")[2].lower().removesuffix("stream")
    return f"{permission.partition('.')[0]}.{verb}"


def _authorization(details: grpc.HandlerCallDetails) -> str | None:
    for name, value in details.invocation_metadata or ():
        if name == "authorization":
            return value if isinstance(value, str) else None
    return None


def _refusing(handler: "grpc.RpcMethodHandler[Any, Any]", error: AgentFlowError) -> "grpc.RpcMethodHandler[Any, Any]":
    async def refuse(_: Any, context: "grpc.aio.ServicerContext[Any, Any]") -> Any:
        await context.abort(status_of(error), str(error), metadata_of(error))

    async def refuse_stream(_: Any, context: "grpc.aio.ServicerContext[Any, Any]") -> Any:
        await refuse(_, context)
        yield  # never: it makes this a stream

    return _with(handler, refuse_stream if handler.response_streaming else refuse)


def _answering_as(
    handler: "grpc.RpcMethodHandler[Any, Any]",
    principal: Principal,
    allowed: Callable[[AsyncIterator[Any]], AsyncGenerator[Any, None]],
    note: Note | None,
    trail: Trail,
) -> "grpc.RpcMethodHandler[Any, Any]":
    """`allowed`: the parts of a stream, for as long as whoever asked may have them."""
    inner = _behaviour(handler)

    async def answer(request: Any, context: Any) -> Any:
        _caller.set(principal)
        async with _recorded(note, trail):
            answered = await inner(request, context)
        await _finished(note, trail, context)
        return answered

    async def stream(request: Any, context: Any) -> Any:
        _caller.set(principal)
        parts = inner(request, context)
        async with _recorded(note, trail), aclosing(parts), aclosing(allowed(parts)) as watched:
            try:
                async for part in watched:
                    await _finished(note, trail, context)  # whatever it changes is done before its first word
                    yield part
            except AgentFlowError as lost:
                await context.abort(status_of(lost), str(lost), metadata_of(lost))

    return _with(handler, stream if handler.response_streaming else answer)


@asynccontextmanager
async def _recorded(note: Note | None, trail: Trail) -> AsyncIterator[None]:
    """Whatever the call changes is written together with its note; where it fails, what was committed stays so."""
    try:
        with noting(note):
            yield
    except BaseException:
        if note is not None and note.refused:
            await trail.deny(note)
        elif note is not None:
            trail.given_up(note)
        raise


async def _finished(note: Note | None, trail: Trail, context: Any) -> None:
    if note is not None and not note.finished:
        async with answering(context):
            await trail.finish(note)


def _behaviour(handler: "grpc.RpcMethodHandler[Any, Any]") -> Callable[[Any, Any], Any]:
    found: Any = getattr(handler, _kind(handler))
    behaviour: Callable[[Any, Any], Any] = found
    return behaviour


def _kind(handler: "grpc.RpcMethodHandler[Any, Any]") -> str:
    return f"{_arity(handler.request_streaming)}_{_arity(handler.response_streaming)}"


def _arity(streaming: bool) -> str:
    return "stream" if streaming else "unary"


def _with(
    handler: "grpc.RpcMethodHandler[Any, Any]", behaviour: Callable[[Any, Any], Any]
) -> "grpc.RpcMethodHandler[Any, Any]":
    make: Callable[..., grpc.RpcMethodHandler[Any, Any]] = getattr(grpc, f"{_kind(handler)}_rpc_method_handler")
    return make(
        behaviour,
        request_deserializer=handler.request_deserializer,
        response_serializer=handler.response_serializer,
    )
