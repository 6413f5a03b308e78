"""Starting with a key: one execution, however often and from however many callers the request comes."""

import asyncio
import uuid

import pytest

from agentflow.errors import Conflict

TICKET = {"ticket": "I forgot my password and the reset link has expired.", "customer": "Mara"}


@pytest.fixture(autouse=True)
async def registered(api, support):
    await api.push_workflow(support)


async def test_the_same_request_with_the_same_key_gives_the_same_execution(api):
    key = uuid.uuid4().hex
    first = await api.execute("support", TICKET, key=key)
    again = await api.execute("support", TICKET, key=key, wait=True)
    after_its_end = await api.execute("support", TICKET, key=key)

    assert first.execution_id == again.execution_id == after_its_end.execution_id
    assert again.status == "completed"
    assert [event.type for event in await api.history(first.execution_id)].count("execution.started.v1") == 1


async def test_callers_that_race_with_one_key_start_one_execution(api):
    key = uuid.uuid4().hex
    started = await asyncio.gather(*(api.execute("support", TICKET, key=key) for _ in range(10)))

    assert len({one.execution_id for one in started}) == 1
    other = await api.execute("support", TICKET, key=uuid.uuid4().hex)
    assert other.execution_id != started[0].execution_id


async def test_another_request_with_the_same_key_is_a_conflict(api):
    key = uuid.uuid4().hex
    await api.execute("support", TICKET, key=key)

    with pytest.raises(Conflict, match="used before"):
        await api.execute("support", {**TICKET, "customer": "Jonas"}, key=key)
