"""`eventually` waits exactly as long as it must, and says what it saw when it gives up."""

import asyncio
from itertools import count

import pytest

from agentflow.testing import eventually


async def test_the_first_true_answer_is_returned() -> None:
    answers = iter([0, None, "", "here"])
    assert await eventually(lambda: next(answers)) == "here"


async def test_an_awaitable_answer_is_awaited() -> None:
    numbers = count()

    async def at_least_three() -> int | None:
        number = next(numbers)
        return number if number >= 3 else None

    assert await eventually(at_least_three) == 3


async def test_giving_up_says_what_was_last_seen() -> None:
    with pytest.raises(AssertionError, match=r"not true within 0\.02 s; last saw \[\]"):
        await eventually(list, within_s=0.02)


async def test_a_condition_that_never_answers_is_given_up_too() -> None:
    with pytest.raises(AssertionError, match="last saw no answer at all"):
        await eventually(asyncio.Event().wait, within_s=0.02)


async def test_an_error_in_the_condition_is_not_waited_out() -> None:
    def broken() -> bool:
        raise TimeoutError("the condition's own")

    with pytest.raises(TimeoutError, match="the condition's own"):
        await eventually(broken)
