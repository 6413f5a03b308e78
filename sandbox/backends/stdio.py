"""A program inside that we talk to over the pipes of a child process: bubblewrap, runsc, or Python itself."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping, Sequence
from typing import cast

from sandbox.backends.cgroup import Cgroup
from sandbox.backends.exchange import LOG_BYTES_MAX, Ending, TooLarge, is_complete

_STDERR = 2
_READY = b"ready\n"
_STOP_S = 2.0  # the warden needs a moment to end the tool; after this it is not asked any more


class Conversation(asyncio.SubprocessProtocol):
    """What the process says, up to a bound, and when it has said all of it."""

    def __init__(self, *, hasty: bool = False) -> None:
        self._hasty = hasty
        self.is_ready = asyncio.Event()
        self.exited = asyncio.Event()
        self.lost = asyncio.Event()
        self.over: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.over.add_done_callback(lambda over: over.cancelled() or over.exception())  # looked at, also if unheard
        self._answer_bytes_max = len(_READY)
        self._answer = bytearray()
        self._logs = bytearray()

    def listen(self, *, answer_bytes_max: int, logs: bytearray) -> None:
        """The call is on its way: from here on what comes is its answer and its log."""
        self._answer_bytes_max = answer_bytes_max
        logs += self._logs
        self._logs = logs

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == _STDERR:
            self._logs += data[: LOG_BYTES_MAX - len(self._logs)]
            return
        if not self.is_ready.is_set() and self._answer + data == _READY:
            self._answer.clear()
            self.is_ready.set()
        elif len(self._answer) <= self._answer_bytes_max:
            self._answer += data
            if len(self._answer) > self._answer_bytes_max and not self.over.done():
                self.over.set_exception(TooLarge())
            elif self._hasty and is_complete(self._answer) and not self.over.done():
                self.over.set_result(bytes(self._answer))

    def logged(self) -> str:
        return self._logs.decode(errors="replace").strip()

    def process_exited(self) -> None:
        self.exited.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """The process has exited and nobody holds its pipes any more."""
        self.is_ready.set()
        self.lost.set()
        if not self.over.done():
            self.over.set_result(bytes(self._answer))


class StdioProcess:
    """The process and, where there is one, the control group that everything it starts belongs to."""

    def __init__(
        self,
        transport: asyncio.SubprocessTransport,
        conversation: Conversation,
        cgroup: Cgroup | None,
        wrapped: bool = False,
    ) -> None:
        self._transport = transport
        self._conversation = conversation
        self._cgroup = cgroup
        self._wrapped = wrapped

    @classmethod
    async def start(
        cls,
        argv: Sequence[str],
        *,
        cwd: str,
        env: Mapping[str, str],
        cgroup: Cgroup | None,
        hasty: bool = False,
        wrapped: bool = False,
    ) -> "StdioProcess":
        """`hasty` takes an answer as soon as it is complete, and does not wait for the exit of what wraps it.

        `wrapped`: it is bubblewrap, which takes everything inside with it.
        """
        started = list(argv) if cgroup is None else cgroup.joining(list(argv))
        starting = asyncio.ensure_future(
            asyncio.get_running_loop().subprocess_exec(
                lambda: Conversation(hasty=hasty), *started, cwd=cwd, env=dict(env), start_new_session=True
            )
        )
        try:
            transport, conversation = await asyncio.shield(starting)
        except asyncio.CancelledError:
            # Left to itself, asyncio would kill what it started and nothing that this has started in turn.
            transport, conversation = await starting
            await cls(transport, conversation, cgroup, wrapped).end()
            raise
        except BaseException:
            if cgroup is not None:
                cgroup.discard()
            raise
        return cls(transport, conversation, cgroup, wrapped)

    async def ready(self) -> None:
        await self._conversation.is_ready.wait()
        if self._conversation.exited.is_set():
            raise ProcessLookupError("it ended before it was ready")

    def said(self) -> str:
        """What it has logged so far, before any call."""
        return self._conversation.logged()

    async def ask(self, frame: bytes, *, answer_bytes_max: int, logs: bytearray) -> Ending:
        self._conversation.listen(answer_bytes_max=answer_bytes_max, logs=logs)
        stdin = cast(asyncio.WriteTransport, self._transport.get_pipe_transport(0))
        stdin.write(frame)  # and left open: when it closes, the program inside knows that nobody waits any more
        raw = await self._conversation.over
        return Ending(
            raw,
            clean=self._transport.get_returncode() in (0, None),  # None: hasty, and still on its way out
            out_of_memory=self._cgroup is not None and self._cgroup.ran_out_of_memory(),
            out_of_processes=self._cgroup is not None and self._cgroup.ran_out_of_processes(),
        )

    def kill(self) -> bool:
        """Condemn everything at once, and do not wait. False where there is no group to do it with."""
        if self._cgroup is None:
            return False
        self._cgroup.kill()
        return True

    async def end(self) -> None:
        """Leave nothing running. It is asked first: only a warden can reach a tool that left its process group."""
        if self._cgroup is not None:
            self._cgroup.kill()
        elif self._wrapped:
            # Bubblewrap that is killed while it starts leaves a half of itself waiting for ever, with our pipes in
            # its hands: so both halves at once, before the first can be missed.
            self._kill_group()
        try:
            if not self._conversation.exited.is_set():
                with contextlib.suppress(ProcessLookupError):
                    # Not transport.terminate(): it polls, and so takes the exit code away from who waits for it.
                    os.kill(self._transport.get_pid(), signal.SIGTERM)
                async with asyncio.timeout(_STOP_S):
                    await self._conversation.exited.wait()
        except TimeoutError:
            self._kill_group()
            await self._conversation.exited.wait()
        finally:
            if self._cgroup is not None:
                await self._cgroup.end()
            await self._heard_out()
            self._transport.close()

    def _kill_group(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._transport.get_pid(), signal.SIGKILL)

    async def _heard_out(self) -> None:
        """What was inside holds our pipes until it is really gone."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_STOP_S):
                await self._conversation.lost.wait()
