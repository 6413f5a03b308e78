"""One attempt's socket to the outside: opened for a tool call, fenced by its attempt, closed with it.

`worker.tools` opens one around each call that is granted any host; `ways` serves what comes in. The socket is the
attempt's token: nobody else can reach it, and once it is revoked every connection is cut and every new one refused.
"""

import asyncio
import contextlib
import secrets
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from agentflow.contracts.tool_records import EgressRecord, EgressVerdict
from sandbox.egress.allowance import Allowance
from sandbox.egress.policy import Refused
from sandbox.egress.terminator import Terminator
from sandbox.egress.upstream import Upstream
from sandbox.egress.ways import Conversation
from sandbox.egress.wire import Wire

_SOCKET_MODE = 0o666  # a container's user is not ours; the folder (0700) keeps everybody else away


class Door:
    def __init__(
        self,
        allowed: Allowance,
        *,
        upstream: Upstream,
        record: Callable[[EgressRecord], None],
        secret_of: Callable[[str], str | None],
        now_ms: Callable[[], int],
        terminator: Terminator | None,
    ) -> None:
        self.allowed = allowed
        self.upstream = upstream
        self.terminator = terminator
        self.secret_of = secret_of
        self.counts: dict[EgressVerdict, int] = {"allowed": 0, "denied": 0, "closed": 0}
        self.path = ""
        self._record = record
        self._now_ms = now_ms
        self._revoked: Refused | None = None
        self._serving: set[asyncio.Task[None]] = set()

    def check_fence(self) -> None:
        if self._revoked is not None:
            raise self._revoked

    def revoke(self, reason: str) -> None:
        """The attempt is over or superseded: cut what is open, refuse what comes."""
        if self._revoked is None:
            self._revoked = Refused("attempt_over", f"This attempt may not reach out any more: {reason}.")
        for task in self._serving:
            task.cancel()

    def note(self, verdict: EgressVerdict, way: str, host: str, port: int, **details: str | int) -> None:
        self.counts[verdict] += 1
        noted = EgressRecord(self.allowed.site, verdict, way, _shown(host), port, self._now_ms())
        self._record(msgspec.structs.replace(noted, **details))

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        wire = Wire(reader, writer)
        crowded = len(self._serving) >= self.allowed.limits.connections_max
        self._serving.add(task)
        try:
            async with asyncio.timeout(self.allowed.limits.connection_s):
                await Conversation(self, wire).serve(crowded=crowded)
        except (TimeoutError, OSError, EOFError):
            wire.abort()
        except asyncio.CancelledError:
            wire.abort()  # revoked, or the worker goes: nobody awaits this task, so nobody needs the news
        finally:
            self._serving.discard(task)
            await wire.close()

    async def drain(self) -> None:
        await asyncio.gather(*self._serving, return_exceptions=True)


class EgressProxy:
    """Opens doors. One per worker; holds nothing of any call."""

    def __init__(
        self,
        *,
        upstream: Upstream,
        record: Callable[[EgressRecord], None],
        secret_of: Callable[[str], str | None],
        now_ms: Callable[[], int],
        terminator: Terminator | None = None,
    ) -> None:
        self._upstream = upstream
        self._terminator = terminator
        self._record = record
        self.secret_of = secret_of
        self._now_ms = now_ms

    @property
    def authority_pem(self) -> str | None:
        """What a sandbox must trust to speak TLS to hosts whose requests get a credential."""
        return self._terminator.authority_pem if self._terminator is not None else None

    @asynccontextmanager
    async def door(self, allowed: Allowance) -> AsyncIterator[Door]:
        door = Door(
            allowed,
            upstream=self._upstream,
            record=self._record,
            secret_of=self.secret_of,
            now_ms=self._now_ms,
            terminator=self._terminator,
        )
        with tempfile.TemporaryDirectory(prefix="af-egress-", ignore_cleanup_errors=True) as folder:
            path = Path(folder) / f"{secrets.token_urlsafe(9)}.sock"
            server = await asyncio.start_unix_server(door.serve, path)
            path.chmod(_SOCKET_MODE)
            door.path = str(path)
            try:
                yield door
            finally:
                server.close()
                door.revoke("it has ended")
                await door.drain()
                with contextlib.suppress(Exception):
                    await server.wait_closed()


def _shown(host: str) -> str:
    return host[:253].encode("ascii", errors="backslashreplace").decode()
