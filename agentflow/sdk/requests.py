"""How the client asks: one request, again where that changes nothing, and its answer in a shape.

What every noun of the client stands on; it knows no noun itself. Also how paths, parameters and pages are written.
"""

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Protocol, TypeVar
from urllib.parse import quote

import msgspec

from agentflow.clock import Clock
from agentflow.errors import Bug, Limited, Unavailable
from agentflow.sdk.errors import NotAgentFlow
from agentflow.sdk.transport import Response, Transport

_Answer = TypeVar("_Answer")

ANSWER_S = 30.0  # how long an answer may take beyond the wait that was asked for
BACK_OFF_S = (0.1, 2.0)  # first and longest pause between attempts to reach a control plane that is away
_LIMITED_S_MAX = 5.0  # who is told to come back later than this decides for themselves

Parameters = dict[str, str | float]


class Ask(Protocol):
    """One request, and its answer in a shape: what the parts of a client with a name of their own are given."""

    async def __call__(
        self,
        method: str,
        path: str,
        shape: type[_Answer],
        body: dict[str, Any] | None = None,
        *,
        key: str | None = None,
    ) -> _Answer: ...


class Requests:
    def __init__(self, api_url: str, transport: Transport, clock: Clock, retries: int) -> None:
        self.api_url = api_url
        self._transport = transport
        self._clock = clock
        self._retries = retries

    async def _ask(
        self,
        method: str,
        path: str,
        shape: type[_Answer],
        body: dict[str, Any] | None = None,
        *,
        key: str | None = None,
        params: Parameters | None = None,
        within_s: float = ANSWER_S,
    ) -> _Answer:
        content = None if body is None else msgspec.json.encode(body)
        headers = {"Content-Type": "application/json", **({} if key is None else {"Idempotency-Key": key})}
        response = await self._send(method, path, content=content, headers=headers, params=params, within_s=within_s)
        return self._read(response, shape) if response.content else msgspec.convert(None, shape)

    async def _get(self, path: str, shape: type[_Answer], params: Parameters | None = None) -> _Answer:
        return await self._ask("GET", path, shape, params=params)

    async def _send(
        self,
        method: str,
        path: str,
        *,
        content: str | bytes | None = None,
        headers: dict[str, str] | None = None,
        params: Parameters | None = None,
        within_s: float = ANSWER_S,
    ) -> Response:
        """Once, or again where that changes nothing: a read, a request with a key, or one that was turned away."""
        repeatable = method == "GET" or (headers is not None and "Idempotency-Key" in headers)
        pause_s, longest_s = BACK_OFF_S
        for left in range(self._retries, -1, -1):
            try:
                return await self._transport.send(
                    method, path, content=content, headers=headers, params=params, within_s=within_s
                )
            except Limited as limited:
                if not left or limited.retry_after_s > _LIMITED_S_MAX:
                    raise
                await self._clock.sleep(limited.retry_after_s)
            except NotAgentFlow:
                raise
            except Unavailable:
                if not left or not repeatable:
                    raise
                await self._clock.sleep(pause_s)
                pause_s = min(pause_s * 2, longest_s)
        raise Bug("A request was neither answered nor given up.")

    def _read(self, response: Response, shape: type[_Answer]) -> _Answer:
        try:
            return msgspec.json.decode(response.content, type=shape)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise NotAgentFlow(self.api_url, f"unexpected answer to {response.path}: {error}") from None


def new_key() -> str:
    """With a key of its own a request is done once, however often it is sent."""
    return secrets.token_hex(16)


def segment(text: str) -> str:
    """One part of a path, whatever it holds: a slash in a name must not reach another route."""
    return quote(text, safe="@")


def given(**values: Any) -> dict[str, Any]:
    """What was left out is not sent."""
    return {name: value for name, value in values.items() if value is not None}


def asked(limit: int | None = None, cursor: str | None = None, **filters: str | None) -> Parameters:
    """The parameters of a list."""
    return given(limit=limit, cursor=cursor, **{f"filter[{field}]": value for field, value in filters.items()})


class Page(Protocol):
    @property
    def next_cursor(self) -> str | None: ...


_Page = TypeVar("_Page", bound=Page)


async def pages(ask: Callable[[str | None], Awaitable[_Page]]) -> AsyncIterator[_Page]:
    cursor: str | None = None
    while True:
        page = await ask(cursor)
        yield page
        cursor = page.next_cursor
        if cursor is None:
            return
