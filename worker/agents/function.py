"""An agent that is a Python callable: `def classify(input)`, sync or async, with `context` if it asks for it.

Found by `module:function` (the agents file) or by entry point. Async ones share the event loop and must not
block it; sync ones get a thread, and one that overruns its step's timeout goes on in it unheard.
"""

import importlib
import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

from agentflow.contracts.step import StepRequest
from agentflow.errors import Rejected
from worker.agents.agent import StepContext
from worker.agents.threads import Threads

_SPARE_THREADS_FACTOR = 2  # as many given-up functions as running ones may linger before steps are refused


class AgentNotImportable(Rejected):
    code = "AF1303"

    def __init__(self, agent: str, call: str, reason: str) -> None:
        super().__init__(
            f"Agent {agent!r} cannot be loaded from {call!r}: {reason}.",
            hint="Write `module:function`; the module lies beside the agents file or is installed with the worker.",
        )


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


def load_function(agent: str, call: str) -> Callable[..., Any]:
    """Import `module:function`. Importing runs the module's code: that is what hosting an agent means."""
    module, _, name = call.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except Exception as error:  # a user's module may raise anything while it is imported
        raise AgentNotImportable(agent, call, f"{type(error).__name__}: {error}") from error
    if not callable(found):
        raise AgentNotImportable(agent, call, "it is not callable")
    return found  # type: ignore[no-any-return]
