"""Waiting in a test for something to become true, instead of sleeping and hoping."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, overload

T = TypeVar("T")

_FIRST_PAUSE_S = 0.001
_LONGEST_PAUSE_S = 0.05


@overload
async def eventually(condition: Callable[[], Awaitable[T]], *, within_s: float = 5.0) -> T: ...
@overload
async def eventually(condition: Callable[[], T], *, within_s: float = 5.0) -> T: ...
async def eventually(condition: Callable[[], Any], *, within_s: float = 5.0) -> Any:
    """Ask `condition` again and again until it answers something true, and return that answer.

    An exception from the condition is the test's own and is not swallowed.
    """
    seen = "no answer at all"
    pause_s = _FIRST_PAUSE_S
    deadline = asyncio.timeout(within_s)
    try:
        async with deadline:
            while True:
                answer = condition()
                if inspect.isawaitable(answer):
                    answer = await answer
                if answer:
                    return answer
                seen = repr(answer)
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 1.5, _LONGEST_PAUSE_S)
    except TimeoutError:
        if not deadline.expired():
            raise
    raise AssertionError(f"not true within {within_s:g} s; last saw {seen}")
