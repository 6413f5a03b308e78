"""What the faults left behind, gathered from where it lies: the database, the bus, and what agents wrote down.

Every fault test ends with it: `judged` waits until all has ended and holds it against every invariant.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from agentflow.bus.nats_jetstream import jetstream
from agentflow.bus.subjects import AGENTS, shard_inbox
from agentflow.clock import SystemClock
from agentflow.contracts.step import StepRequest
from agentflow.execution.events import StepScheduled
from agentflow.ids import ExecutionId, StepPath
from agentflow.testing import eventually
from tests.invariants.history import Asked, Effect, History, Reign
from tests.invariants.rules import Story, assert_holds
from tests.invariants.stored import reigns_now, stored_history

SHARDS = 16


@dataclass
class Evidence:
    dsn: str
    nats_url: str
    ran_log: Path
    asked: list[Asked] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)  # seen elsewhere than in the log of the agents
    reigns: list[Reign] = field(default_factory=list)
    bus_forgot: bool = False

    def runs(self) -> list[list[str]]:
        """What agents wrote down: execution, agent, attempt, effect key, and whatever a test adds."""
        return [line.split() for line in self.ran_log.read_text().splitlines()] if self.ran_log.exists() else []

    async def note_owners(self) -> None:
        """From now on nobody may write under an older epoch than those of this moment."""
        self.reigns += await reigns_now(self.dsn)

    async def history(self) -> History:
        ran = [
            Effect(ExecutionId(execution), StepPath(key.split("/", 2)[2]), int(attempt), key)
            for execution, _, attempt, key, *_ in self.runs()
        ]
        return msgspec.structs.replace(
            await stored_history(self.dsn),
            asked=tuple(self.asked),
            effects=(*ran, *self.effects),
            reigns=tuple(self.reigns),
            bus_forgot=self.bus_forgot,
        )

    async def judged(self, *, within_s: float) -> History:
        """Nothing is broken any more: everything ends within this time, and the invariants hold."""
        healed_at_ms = SystemClock().now_ms()
        history = await self.history()

        async def all_ended() -> bool:
            nonlocal history
            await asyncio.sleep(0.2)
            history = await self.history()
            return all(state.ended for state in Story(history).states.values())

        try:
            await eventually(all_ended, within_s=within_s)
        except AssertionError:
            assert_holds(history)  # says what is open, and why
            raise
        in_streams = None if self.bus_forgot else await _all_sent(self.nats_url)
        history = await self.history()
        straight = frozenset(  # these go back to a worker with an answer, which no stream keeps
            (one.execution, one.event.path, one.event.attempt)
            for one in history.events
            if isinstance(one.event, StepScheduled) and one.event.straight
        )
        history = msgspec.structs.replace(
            history,
            sent=None if in_streams is None else in_streams | straight,
            healed_at_ms=healed_at_ms,
            ends_within_ms=round(within_s * 1000),
        )
        assert_holds(history)
        return history


async def _all_sent(nats_url: str) -> frozenset[tuple[ExecutionId, StepPath, int]]:
    """Every attempt that the bus was given to keep, once owners have heard what was said to them, late results too."""
    async with jetstream(nats_url, name="evidence", tends_streams=False) as bus:

        async def all_is_heard() -> bool:
            backlogs = [await bus.backlog(shard_inbox(shard)) for shard in range(SHARDS)]
            return not any(each.waiting or each.unacked for each in backlogs)

        await eventually(all_is_heard, within_s=20)
        requests = [message.read(StepRequest) async for message in bus.replay(AGENTS) if message.type == "request"]
    return frozenset((one.execution_id, one.path, one.attempt) for one in requests)


def assert_nothing_left(left_behind: Sequence[str]) -> None:
    """The last invariant can only be looked at when everything is stopped."""
    assert_holds(History(at_ms=0, events=(), left_behind=tuple(left_behind)))
