"""/api/v1/ws and /api/v1/stream: the live feed over WebSocket and over server-sent events.

Translates only: what is seen, from where on and who is too slow is `control_plane.live.feed`'s business. A value too
large for a feed is left out and named in `large`; the events of the execution have it.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Annotated, Any

import msgspec
import structlog
from fastapi import Header, Query, Response, WebSocket
from fastapi.responses import StreamingResponse
from starlette.websockets import WebSocketDisconnect

from agentflow import limits
from agentflow.clock import rfc3339
from agentflow.contracts.claims import parted
from agentflow.errors import AgentFlowError, Invalid, Rejected
from agentflow.ids import ExecutionId, TenantId
from control_plane.api.answers import documented
from control_plane.api.guard import guarded_router, needs
from control_plane.api.jobs import job_view
from control_plane.api.request import Behind, Tenant, control_plane_of, tenant_of
from control_plane.identity.permissions import Permission
from control_plane.live.feed import LiveEvent, ReaderTooSlow, Topic
from control_plane.service import ControlPlane

router = guarded_router(prefix="/api/v1", tags=["live"])

_log = structlog.get_logger(__name__)
_encode = msgspec.json.Encoder().encode

_GOING_AWAY, _TRY_AGAIN_LATER = 1012, 1013  # what a close of a WebSocket says


class Subscribe(msgspec.Struct, tag="subscribe", tag_field="type", forbid_unknown_fields=True):
    """`execution` or `workflow` (a name), or neither for all of the tenant; what happened `after` a number first.
    With `job`, how far that one is, until it is over."""

    id: Annotated[str, msgspec.Meta(min_length=1, max_length=64)] = "feed"
    job: str | None = None
    execution: str | None = None
    workflow: str | None = None
    after: Annotated[int, msgspec.Meta(ge=0, le=2**53)] | None = None


class Unsubscribe(msgspec.Struct, tag="unsubscribe", tag_field="type", forbid_unknown_fields=True):
    id: str = "feed"


_decode = msgspec.json.Decoder(Subscribe | Unsubscribe).decode


class TooManySubscriptions(Rejected):
    code = "AF1015"

    def __init__(self) -> None:
        super().__init__(
            f"This connection has {limits.LIVE_SUBSCRIPTIONS_MAX} subscriptions already.",
            hint="Watch a workflow or the whole tenant with one subscription, or open another connection.",
        )


@router.websocket("/ws")
@needs(Permission.EXECUTIONS_READ)
async def watch(socket: WebSocket) -> None:
    """Subscribe and unsubscribe as often as you like; every event comes with the number to go on from."""
    behind, tenant = await control_plane_of(socket), await tenant_of(socket)
    await socket.accept()
    await _Socket(socket, behind, tenant).serve()


_STREAMED = """id: 42
event: event
data: {"seq": 42, "execution_id": "exec_01KADE9R5T7M2X4C6V8B0N1Q3W", "type": "step.succeeded.v1"}

"""


@router.get(
    "/stream",
    responses={
        **documented(404, 422, ok={}),
        200: {
            "description": "Server-sent events, without end.",
            "content": {"text/event-stream": {"example": _STREAMED}},
        },
    },
)
@needs(Permission.EXECUTIONS_READ)
async def stream(
    behind: Behind,
    tenant: Tenant,
    execution: Annotated[str | None, Query(description="Only this execution.")] = None,
    workflow: Annotated[str | None, Query(description="Only executions of this workflow, by name.")] = None,
    after: Annotated[int | None, Query(ge=0, le=2**53, description="Begin behind this number; else now.")] = None,
    last_event_id: Annotated[str | None, Header(alias="Last-Event-ID", pattern=r"^\d{1,16}$")] = None,
) -> Response:
    """Every committed event as it happens. After a cut, browsers go on from where they were by themselves."""
    topic = await topic_of(behind, tenant, execution=execution, workflow=workflow)
    begin = int(last_event_id) if last_event_id is not None else after
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(_sent_events(behind, topic, begin), media_type="text/event-stream", headers=headers)


async def topic_of(behind: ControlPlane, tenant: TenantId, *, execution: str | None, workflow: str | None) -> Topic:
    """Raises `ExecutionNotFound` for one that is not the tenant's. A workflow may be registered later."""
    if execution is not None:
        await behind.orchestrator.state(tenant, ExecutionId(execution))
        return Topic(tenant, workflow, ExecutionId(execution))
    return Topic(tenant, workflow)


async def _sent_events(behind: ControlPlane, topic: Topic, after: int | None) -> AsyncIterator[bytes]:
    yield b"retry: 500\n\n"
    async with aclosing(behind.live.read(topic, after=after)) as pages:
        try:
            async for page in pages:
                if not page.events:
                    yield f": alive\nid: {page.seq}\n\n".encode()
                else:
                    yield b"".join(
                        b"id: %d\nevent: event\ndata: %s\n\n" % (event.seq, _encode(live_view(event)))
                        for event in page.events
                    )
        except ReaderTooSlow as slow:
            told = {"seq": slow.seq, "code": slow.code, "detail": slow.message, "hint": slow.hint}
            yield b"event: dropped\ndata: %s\n\n" % _encode(told)


def live_view(event: LiveEvent) -> dict[str, Any]:
    data, large = parted(event.event)
    view = {
        "seq": event.seq,
        "execution_id": event.execution,
        "workflow": event.workflow,
        "version": event.version,
        "type": data.pop("type"),
        "at": rfc3339(data.pop("at_ms")),
        "data": data,
    }
    if large:
        view["large"] = [{"path": list(each.path), "bytes": each.bytes} for each in large]
    return view


class _Socket:
    """One connection: a task for each subscription, and one place where all of them send."""

    def __init__(self, socket: WebSocket, behind: ControlPlane, tenant: TenantId) -> None:
        self._socket = socket
        self._behind = behind
        self._tenant = tenant
        self._subscriptions: dict[str, asyncio.Task[None]] = {}

    async def serve(self) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                await self._listen(tasks)
                for subscription in self._subscriptions.values():
                    subscription.cancel()
        except* (WebSocketDisconnect, TimeoutError, RuntimeError, OSError) as gone:
            _log.debug("watcher.gone", reason=str(gone.exceptions[0]) or type(gone.exceptions[0]).__name__)

    async def _listen(self, tasks: asyncio.TaskGroup) -> None:
        while True:
            message = await self._socket.receive()
            if message["type"] == "websocket.disconnect":
                return
            said = message.get("text") or message.get("bytes") or b""
            try:
                await self._heard(tasks, _decode(said))
            except msgspec.MsgspecError as error:
                wrong = Invalid(f"That message is not understood: {error}.", hint='Send {"type": "subscribe", …}.')
                await self._send(_refusal(None, wrong))
            except AgentFlowError as error:
                await self._send(_refusal(None, error))

    async def _heard(self, tasks: asyncio.TaskGroup, wanted: Subscribe | Unsubscribe) -> None:
        before = self._subscriptions.pop(wanted.id, None)
        if before is not None:
            before.cancel()
        if isinstance(wanted, Unsubscribe):
            await self._send({"type": "unsubscribed", "id": wanted.id})
            return
        if len(self._subscriptions) >= limits.LIVE_SUBSCRIPTIONS_MAX:
            raise TooManySubscriptions
        self._subscriptions[wanted.id] = tasks.create_task(self._feed(wanted), name=f"watcher {wanted.id}")

    async def _feed(self, wanted: Subscribe) -> None:
        try:
            if wanted.job is not None:
                await self._follow(wanted, wanted.job)
                return
            topic = await topic_of(self._behind, self._tenant, execution=wanted.execution, workflow=wanted.workflow)
            await self._hand_on(wanted, topic)
        except ReaderTooSlow as slow:
            await self._send({**_refusal(wanted.id, slow), "type": "dropped", "seq": slow.seq})
            await self._close(_TRY_AGAIN_LATER, "too slow")
        except AgentFlowError as error:
            await self._send(_refusal(wanted.id, error))

    async def _hand_on(self, wanted: Subscribe, topic: Topic) -> None:
        kind = "subscribed"
        async with aclosing(self._behind.live.read(topic, after=wanted.after)) as pages:
            async for page in pages:
                if not page.events:
                    await self._send({"type": kind, "id": wanted.id, "seq": page.seq})
                    kind = "alive"
                for event in page.events:
                    await self._send({"type": "event", "id": wanted.id, "seq": event.seq, "event": live_view(event)})
        await self._close(_GOING_AWAY, "restarting")

    async def _follow(self, wanted: Subscribe, job: str) -> None:
        """No number to go on from: whoever comes back is told at once how far it is."""
        async for seen in self._behind.jobs.watch(self._tenant, job):
            await self._send({"type": "job", "id": wanted.id, "job": job_view(seen)})

    async def _send(self, message: dict[str, Any]) -> None:
        async with asyncio.timeout(limits.LIVE_SEND_S):
            await self._socket.send_text(_encode(message).decode())

    async def _close(self, code: int, reason: str) -> None:
        async with asyncio.timeout(limits.LIVE_SEND_S):
            await self._socket.close(code, reason)


def _refusal(subscription: str | None, error: AgentFlowError) -> dict[str, Any]:
    return {"type": "error", "id": subscription, "code": error.code, "detail": error.message, "hint": error.hint}
