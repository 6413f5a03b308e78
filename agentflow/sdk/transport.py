"""How the client reaches a control plane: the only file of the SDK that knows an HTTP library.

One request at a time in, an answer or one of our errors out; and lines of a stream that stays open. Knows no route.
"""

import io
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import aiohttp
import msgspec
from yarl import URL

from agentflow.sdk.errors import ControlPlaneAway, NotAgentFlow, NoTrust, error_from

_FIRST_ERROR = 400
_AT_ONCE_BYTES = 256 * 1024
_IDLE_S = 3.0  # a connection unused for longer is not used again: servers close theirs after 5 s, perhaps just now
_SILENT_S = 40.0  # a live stream says every 15 s that it is there


class Response(msgspec.Struct, frozen=True):
    path: str
    status: int
    content: bytes


class Transport:
    def __init__(self, api_url: str, headers: dict[str, str], tls: ssl.SSLContext | None = None) -> None:
        self._api_url = api_url
        self._headers = headers
        self._tls = tls
        self._session: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        # As many at once as the caller wants. Proxies of the environment are not asked: they are for the outside, and
        # must not stand between us and a loopback address.
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=_IDLE_S, ssl=self._tls or True)
        self._session = aiohttp.ClientSession(connector=connector, trust_env=False, headers=self._headers)

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def send(
        self,
        method: str,
        path: str,
        *,
        content: str | bytes | None,
        headers: dict[str, str] | None,
        params: dict[str, str | float] | None,
        within_s: float,
    ) -> Response:
        try:
            async with self._opened().request(
                method,
                self._url(path),
                data=_in_parts(content),
                headers=headers,
                params=params,
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(total=within_s),
            ) as response:
                answer = Response(path, response.status, await response.read())
                retry_after = response.headers.get("Retry-After", "")
        except (aiohttp.ClientSSLError, ssl.SSLError) as error:
            raise NoTrust(self._api_url, _reason(error)) from None
        except (aiohttp.InvalidURL, ValueError) as error:
            raise NotAgentFlow(self._api_url, str(error)) from None
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise ControlPlaneAway(self._api_url, str(error) or type(error).__name__) from None
        if answer.status >= _FIRST_ERROR:
            raise error_from(self._api_url, answer.status, answer.content, _seconds(retry_after))
        return answer

    async def lines(self, path: str, params: dict[str, str | float]) -> AsyncGenerator[str, None]:
        """Of an answer that has no end; ends when the server lets go. Silence counts as being away."""
        async with self._streamed(path, params) as response:
            async for line in response.content:
                yield line.decode().rstrip("\r\n")

    async def chunks(self, path: str) -> AsyncGenerator[bytes, None]:
        """Of an answer that need not fit into memory."""
        async with self._streamed(path, {}) as response:
            async for chunk in response.content.iter_any():
                yield chunk

    @asynccontextmanager
    async def _streamed(
        self, path: str, params: dict[str, str | float]
    ) -> AsyncGenerator[aiohttp.ClientResponse, None]:
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_SILENT_S, sock_read=_SILENT_S)
        try:
            async with self._opened().get(self._url(path), params=params, timeout=timeout) as response:
                if response.status >= _FIRST_ERROR:
                    raise error_from(self._api_url, response.status, await response.read())
                yield response
        except (aiohttp.ClientSSLError, ssl.SSLError) as error:
            raise NoTrust(self._api_url, _reason(error)) from None
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise ControlPlaneAway(self._api_url, str(error) or type(error).__name__) from None

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            raise RuntimeError("A Client is open inside of `async with` only.")
        return self._session

    def _url(self, path: str) -> URL:
        return URL(path if path.startswith(self._api_url) else f"{self._api_url}/api/v1{path}", encoded=True)


def _in_parts(content: str | bytes | None) -> str | bytes | io.BytesIO | None:
    """A large body is written piece by piece, so that nothing else of the caller's loop waits for it."""
    return io.BytesIO(content) if isinstance(content, bytes) and len(content) > _AT_ONCE_BYTES else content


def _seconds(retry_after: str) -> float:
    return float(retry_after) if retry_after.isdigit() else 1.0


def _reason(error: Exception) -> str:
    """What OpenSSL says of it, without where in its source."""
    cause = getattr(error, "certificate_error", None) or getattr(error, "os_error", None) or error
    return getattr(cause, "verify_message", "") or getattr(cause, "reason", None) or str(cause)
