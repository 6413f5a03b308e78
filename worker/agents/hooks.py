"""An agent that is a class: told when it begins, of each message, and when it ends.

    on_start(agent) → on_message(input, context) → on_plan(noted, context) → on_finish(agent)

`on_message` takes a step in and `on_plan` answers it, given what `on_message` returned; a class with only one of the
two answers with that one. Every hook is optional but those two, and each may be sync (it gets a thread) or async.
One instance serves all steps of a worker at once; a stateful agent (`worker.states`) has one for each of its states.
"""

import asyncio
import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from agentflow.contracts.step import StepRequest
from agentflow.ids import TenantId
from worker.agents.agent import StepContext
from worker.agents.threads import Threads

_SPARE_THREADS_FACTOR = 2


class AgentLife(msgspec.Struct, frozen=True):
    """What `on_start` and `on_finish` are given: who lives, and what it remembers."""

    name: str
    instance: str = ""  # which of the agent's states; empty where it has none
    tenant: TenantId = TenantId("")
    state: dict[str, Any] = msgspec.field(default_factory=dict)


def has_hooks(found: Any) -> bool:
    return inspect.isclass(found) and (hasattr(found, "on_message") or hasattr(found, "on_plan"))


class HookedAgent:
    def __init__(self, kind: Callable[[], Any], life: AgentLife, *, concurrency: int) -> None:
        self._kind = kind
        self._life = life
        self._threads = Threads(f"agent {life.name}", threads_max=_SPARE_THREADS_FACTOR * concurrency)
        self._living: Any = None
        self._birth = asyncio.Lock()

    async def start(self) -> None:
        """Make the object and tell it, once. An `on_start` that fails is tried again with the next step."""
        async with self._birth:
            if self._living is not None:
                return
            living = self._kind()
            if hasattr(living, "on_start"):
                await self._call(living.on_start, self._life)
            self._living = living

    async def run(self, request: StepRequest, context: StepContext) -> Any:
        if self._living is None:
            await self.start()
        answer = request.input
        for hook in ("on_message", "on_plan"):
            if hasattr(self._living, hook):
                answer = await self._call(getattr(self._living, hook), answer, context)
        return answer

    async def close(self) -> None:
        living, self._living = self._living, None
        try:
            if living is not None and hasattr(living, "on_finish"):
                await self._call(living.on_finish, self._life)
        finally:
            self._threads.close()

    async def _call(self, hook: Callable[..., Any], *arguments: Any) -> Any:
        if inspect.iscoroutinefunction(hook):
            return await hook(*arguments)
        return await self._threads.call(partial(hook, *arguments))
