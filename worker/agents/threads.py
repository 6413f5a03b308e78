"""Threads for functions that block. Python cannot stop a thread, so these are daemons and never waited for.

Used by `function`. A pool of the standard library would make the process wait at its exit for a function that
hangs, and would let a few hung ones hold up all others; here a hung one costs its own thread only.
"""

import asyncio
import contextvars
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from agentflow.contracts.step import StepFault
from worker.outcome import StepFailed

_Work = Callable[[], None]
_Answer = tuple[Any, BaseException | None]


class Threads:
    """Made on demand, reused when idle, at most `threads_max`."""

    def __init__(self, name: str, *, threads_max: int) -> None:
        self._name = name
        self._threads_max = threads_max
        self._lock = threading.Lock()
        self._queue: SimpleQueue[_Work | None] = SimpleQueue()
        self._idle = 0
        self._count = 0

    async def call(self, function: Callable[[], Any]) -> Any:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[_Answer] = loop.create_future()
        context = contextvars.copy_context()

        def work() -> None:
            answer: _Answer
            try:
                answer = context.run(function), None
            except BaseException as error:  # noqa: BLE001 - carried to the awaiting step, SystemExit too
                answer = None, error
            try:
                loop.call_soon_threadsafe(_settle, done, answer)
            except RuntimeError:
                return  # the loop is gone: nobody waits any more

        self._queue_up(work)
        output, error = await done
        if error is not None:
            raise error
        return output

    def close(self) -> None:
        """Let the idle ones end; a busy one ends with the process."""
        with self._lock:
            for _ in range(self._idle):
                self._queue.put(None)
            self._idle = 0

    def _queue_up(self, work: _Work) -> None:
        with self._lock:
            if self._idle:
                self._idle -= 1
            elif self._count < self._threads_max:
                self._count += 1
                threading.Thread(target=self._serve, name=self._name, daemon=True).start()
            else:
                stuck = f"All {self._threads_max} threads of this agent are busy with steps that were given up."
                raise StepFailed(StepFault("agent_stuck", stuck, retryable=True))
        self._queue.put(work)

    def _serve(self) -> None:
        while (work := self._queue.get()) is not None:
            work()
            with self._lock:
                self._idle += 1
        with self._lock:
            self._count -= 1


def _settle(done: asyncio.Future[_Answer], answer: _Answer) -> None:
    if not done.done():
        done.set_result(answer)
