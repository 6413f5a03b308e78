"""One thread, no waiting, time that is only counted: an event loop on which several processes live at once.

A process is a mark that travels with every task (a context variable). Killing one drops all it would still have done,
at whatever `await` it stands; stopping one keeps it aside. Within a process everything runs in asyncio's own order;
which process goes next is chance, and chance comes from the seed.
"""

import asyncio
import heapq
import random
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import Any

TURNS_MAX = 2_000_000  # a busy day has some thirty thousand

_MINE: ContextVar["Process | None"] = ContextVar("process", default=None)


class Process:
    """Whatever dies at once. `context` is where its callbacks run."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_alive = True
        self.is_stopped = False
        self.ready: deque[asyncio.Handle] = deque()
        self.context = copy_context()
        self.context.run(_MINE.set, self)

    def __repr__(self) -> str:
        return self.name


class StuckLoop(Exception):
    """Something happens again and again, and time does not pass."""


class SimulatedLoop(asyncio.AbstractEventLoop):
    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._now_s = 0.0
        self._count = 0
        self._later: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._processes: list[Process] = []
        self._outside = self.process("outside")  # servers, clients and the nemesis: they never die
        self._busy: list[Process] = []  # those with something to do
        self._tasks: list[asyncio.Task[Any]] = []
        self.troubles: list[str] = []  # what ended in an exception that nobody takes

    # What asyncio needs.

    def time(self) -> float:
        return self._now_s

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(
        self, coro: Coroutine[Any, Any, Any], *, name: str | None = None, context: Context | None = None
    ) -> asyncio.Task[Any]:
        task = asyncio.Task(coro, loop=self, name=name, context=context)
        self._tasks.append(task)  # also those of the dead: nobody may collect them while the day lasts
        return task

    def call_soon(self, callback: Callable[..., Any], *args: Any, context: Context | None = None) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._enqueue(handle)
        return handle

    def call_later(
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now_s + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self._count += 1
        heapq.heappush(self._later, (when, self._count, handle))
        return handle

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        """A disk that takes a moment: the process may die before or after."""
        done = self.create_future()

        def run() -> None:
            if done.cancelled():
                return
            try:
                done.set_result(func(*args))
            except Exception as error:  # noqa: BLE001 - as a thread would hand it on
                done.set_exception(error)

        self.call_later(self._chance.random() * 0.01, run)
        return done

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self.troubles.append(f"{context.get('message')}: {error!r}" if error else str(context.get("message")))

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        pass

    # Processes.

    def process(self, name: str) -> Process:
        self._processes.append(Process(name))
        return self._processes[-1]

    def outside(self, callback: Callable[..., Any], *args: Any, after_s: float = 0.0) -> asyncio.TimerHandle:
        """Something that servers, the network or the nemesis do, whoever dies meanwhile."""
        return self.call_at(self._now_s + after_s, callback, *args, context=self._outside.context)

    def inside(self, process: Process, callback: Callable[..., Any], *args: Any) -> None:
        if process.is_alive:
            self.call_soon(callback, *args, context=process.context)

    def spawn(self, process: Process, coro: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        return self.create_task(coro, context=process.context.copy())

    def kill(self, process: Process) -> None:
        process.is_alive = False  # what it would have done stays where it is, and is only ended in the evening

    def stop_process(self, process: Process) -> None:
        process.is_stopped = True

    def resume_process(self, process: Process) -> None:
        process.is_stopped = False
        if process.is_alive and process.ready and process not in self._busy:
            self._busy.append(process)

    # Living.

    def run_until(self, is_over: Callable[[], bool], *, until_s: float) -> None:
        """Until it is over, or that moment has come."""
        turns = 0
        asyncio._set_running_loop(self)
        try:
            while not is_over():
                if self._busy:
                    self._step()
                elif not self._advance(until_s):
                    return
                turns += 1
                if turns > TURNS_MAX:
                    raise StuckLoop(f"after {self._now_s:.3f} s it turns in circles")
        finally:
            asyncio._set_running_loop(None)

    def bury(self, turns: int = 200) -> None:
        """The day is over: end every task, the dead ones' too, so that none is found unfinished later."""
        asyncio._set_running_loop(self)
        try:
            for _ in range(turns):
                left = [task for task in self._tasks if not task.done()]
                if not left:
                    break
                for process in self._processes:
                    process.is_alive = True
                    self.resume_process(process)
                for task in left:
                    task.cancel()
                while self._busy:
                    self._step()
            for task in self._tasks:
                if task.done() and not task.cancelled():
                    task.exception()  # seen
        finally:
            asyncio._set_running_loop(None)
            self._tasks.clear()
            self._later.clear()

    def _enqueue(self, handle: asyncio.Handle) -> None:
        process = handle._context.get(_MINE) or self._outside
        process.ready.append(handle)
        if process.is_alive and not process.is_stopped and len(process.ready) == 1:
            self._busy.append(process)

    def _step(self) -> None:
        busy = self._busy
        at = int(self._chance.random() * len(busy)) if len(busy) > 1 else 0
        process = busy[at]
        if process.is_stopped or not process.is_alive or not process.ready:
            del busy[at]
            return
        handle = process.ready.popleft()
        if not process.ready:
            del busy[at]
        if not handle._cancelled:
            handle._run()

    def _advance(self, until_s: float) -> bool:
        later = self._later
        while later and later[0][2]._cancelled:
            heapq.heappop(later)
        if not later or later[0][0] > until_s:
            self._now_s = max(self._now_s, until_s)
            return False
        self._now_s = max(self._now_s, later[0][0])
        while later and later[0][0] <= self._now_s:
            handle = heapq.heappop(later)[2]
            if not handle._cancelled:
                self._enqueue(handle)
        return True
