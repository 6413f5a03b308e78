"""An agent that is a Python callable: `def classify(input)`, sync or async, with `context` if it asks for it.

Found by `module:function` (see `loading`) or by entry point. Async ones share the event loop and must not block it;
sync ones get a thread, and one that overruns its step's timeout goes on in it unheard unless it looks at
`context.cancelled`.
"""

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

from agentflow.contracts.step import StepRequest
from worker.agents.agent import StepContext
from worker.agents.threads import Threads

_SPARE_THREADS_FACTOR = 2  # as many given-up functions as running ones may linger before steps are refused


class FunctionAgent:
    def __init__(self, name: str, function: Callable[..., Any], *, concurrency: int) -> None:
        self._function = function
        self._takes_context = "context" in inspect.signature(function).parameters
        self._is_async = inspect.iscoroutinefunction(function)
        self._threads = Threads(f"agent {name}", threads_max=_SPARE_THREADS_FACTOR * concurrency)

    async def run(self, request: StepRequest, context: StepContext) -> Any:
        if self._is_async:
            if self._takes_context:
                return await self._function(request.input, context=context)
            return await self._function(request.input)
        if self._takes_context:
            return await self._threads.call(partial(self._function, request.input, context=context))
        return await self._threads.call(partial(self._function, request.input))

    async def close(self) -> None:
        self._threads.close()
