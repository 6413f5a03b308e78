import asyncio

import pytest

from agentflow.bus import subjects
from agentflow.clock import ControlledClock
from agentflow.execution.events import WorkflowRef
from agentflow.execution.state import ExecutionState
from agentflow.ids import ExecutionId, TenantId, UlidSource, WorkflowId
from agentflow.limits import FEED_EVERY_S, FEED_EXECUTIONS_MAX
from agentflow.ports import BusUnavailable
from control_plane.orchestrator.feed import Feed


class Bus:
    """Keeps what is published; raises instead while it is `away`."""

    def __init__(self):
        self.published = []
        self.away = False

    async def publish(self, subject, message, *, dedup_id, confirm):
        if self.away:
            raise BusUnavailable("gone")
        self.published.append((subject, message))


@pytest.fixture
async def feeding():
    clock, bus = ControlledClock(), Bus()
    feed = Feed(bus=bus, clock=clock, ids=UlidSource(clock.now_ms), shards=1)
    running = asyncio.create_task(feed.run())

    async def moment():
        for _ in range(3):
            await asyncio.sleep(0)
        await clock.advance(FEED_EVERY_S)
        for _ in range(3):
            await asyncio.sleep(0)

    yield feed, bus, moment
    running.cancel()


def running_as(tenant, execution, *, version=2):
    workflow = WorkflowRef(WorkflowId("wf_1"), "support", "1.0.0", "digest")
    return ExecutionState(version=version, execution=ExecutionId(execution), tenant=TenantId(tenant), workflow=workflow)


async def test_all_that_a_workflow_did_in_a_moment_is_told_in_one_message(feeding):
    feed, bus, moment = feeding
    feed.tell(running_as("acme", "exec_1", version=2))
    feed.tell(running_as("acme", "exec_2", version=2))
    feed.tell(running_as("acme", "exec_1", version=4))

    await moment()

    ((subject, message),) = bus.published
    assert subject == subjects.workflow_out("support", 0)
    assert message.read(dict)["reached"] == {"exec_1": 4, "exec_2": 2}


async def test_more_executions_than_a_message_names_are_told_in_several(feeding):
    feed, bus, moment = feeding
    for number in range(FEED_EXECUTIONS_MAX + 1):
        feed.tell(running_as("acme", f"exec_{number}"))

    await moment()

    assert [len(message.read(dict)["reached"]) for _, message in bus.published] == [FEED_EXECUTIONS_MAX, 1]


async def test_tenants_never_share_a_message(feeding):
    feed, bus, moment = feeding
    feed.tell(running_as("acme", "exec_1"))
    feed.tell(running_as("umbrella", "exec_2"))

    await moment()

    assert [message.metadata["tenant_id"] for _, message in bus.published] == ["acme", "umbrella"]


async def test_a_bus_that_is_away_costs_the_news_of_that_moment_and_no_more(feeding):
    feed, bus, moment = feeding
    bus.away = True
    feed.tell(running_as("acme", "exec_1", version=2))
    await moment()
    bus.away = False
    feed.tell(running_as("acme", "exec_1", version=3))

    await moment()

    assert [message.read(dict)["reached"] for _, message in bus.published] == [{"exec_1": 3}]
