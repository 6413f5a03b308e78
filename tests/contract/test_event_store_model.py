"""Any order of starts, moves, rivals and takeovers leaves the store exactly where a plain dictionary would be."""

import asyncio
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from functools import reduce
from itertools import count
from typing import Any, ClassVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule, run_state_machine_as_test

from agentflow.execution.events import (
    Event,
    ExecutionCompleted,
    ExecutionStarted,
    StepScheduled,
    StepSucceeded,
    WorkflowRef,
)
from agentflow.execution.evolve import evolve
from agentflow.execution.state import ExecutionState
from agentflow.ids import AgentName, ExecutionId, StepPath, TenantId, TraceId, WorkerId, WorkflowId
from agentflow.ports import NewEvents, ShardLost, VersionConflict
from control_plane.storage.database import database
from control_plane.storage.event_store import SqlEventStore
from control_plane.storage.executions import SqlExecutions
from control_plane.storage.leases import SqlShardLeases
from control_plane.storage.migrate import upgrade

TENANT = TenantId("acme")
SHARDS = 3
WORKFLOW = WorkflowRef(WorkflowId("wf_1"), "w", "1.0.0", "d")


class Opened:
    """One database for all examples: each uses executions of its own."""

    def __init__(self, dsn: str) -> None:
        self._runner = asyncio.Runner()
        self._stack = AsyncExitStack()
        self.numbers = count()
        self.db = self(self._stack.enter_async_context(database(dsn)))
        self(upgrade(self.db))
        self.store = SqlEventStore(self.db, snapshot_every=4)
        self.leases = SqlShardLeases(self.db)
        self.listed = SqlExecutions(self.db)

    def __call__(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self._runner.run(work)

    def close(self) -> None:
        self(self._stack.aclose())
        self._runner.close()


class Store(RuleBasedStateMachine):
    opened: ClassVar[Opened]
    running = Bundle("running")

    def __init__(self) -> None:
        super().__init__()
        self.states: dict[ExecutionId, ExecutionState] = {}
        self.events: dict[ExecutionId, list[Event]] = {}
        self.epochs: dict[int, int] = self.taken()
        self.old = {shard: epoch - 1 for shard, epoch in self.epochs.items()}

    def taken(self) -> dict[int, int]:
        holder = f"srv_{next(self.opened.numbers)}"
        return dict(self.opened(self.opened.leases.acquire(range(SHARDS), holder, lease_s=60, steal=True)))

    def move(self, execution: ExecutionId, *events: Event) -> NewEvents:
        before = self.states.get(execution, ExecutionState())
        after = reduce(evolve, events, before)
        return NewEvents(execution, TENANT, hash(execution) % SHARDS, before.version, events, after)

    def written(self, *moves: NewEvents) -> None:
        self.opened(self.opened.store.append(moves, self.epochs))
        for move in moves:
            self.states[move.execution] = move.state
            self.events.setdefault(move.execution, []).extend(move.events)

    def step(self, execution: ExecutionId) -> tuple[Event, Event]:
        path = StepPath(f"s{next(self.opened.numbers)}")
        return (
            StepScheduled(2, path, path, 1, AgentName("a"), {"x": 1.0}, 1_000),
            StepSucceeded(3, path, 1, {"y": [None]}, WorkerId("wrk"), 2, 3),
        )

    @rule(target=running)
    def start(self) -> ExecutionId:
        execution = ExecutionId(f"exec_{next(self.opened.numbers):08}")
        self.written(self.move(execution, ExecutionStarted(1, execution, TENANT, WORKFLOW, {}, TraceId("t"))))
        return execution

    @rule(some=st.lists(running, min_size=1, max_size=4, unique=True))
    def go_on(self, some: list[ExecutionId]) -> None:
        self.written(*(self.move(execution, *self.step(execution)) for execution in some))

    @rule(execution=consumes(running))
    def end(self, execution: ExecutionId) -> None:
        self.written(self.move(execution, ExecutionCompleted(9, {"done": True})))

    @rule(execution=running, good=running, back=st.integers(-2, 3).filter(bool))
    def a_rival_is_refused(self, execution: ExecutionId, good: ExecutionId, back: int) -> None:
        right = self.move(execution, *self.step(execution))
        wrong = NewEvents(execution, TENANT, right.shard, right.after_version - back, right.events, right.state)
        if wrong.after_version < 0:
            return
        others = [self.move(good, *self.step(good))] if good != execution else []
        with pytest.raises(VersionConflict):
            self.opened(self.opened.store.append([*others, wrong], self.epochs))

    @rule()
    def take_over(self) -> None:
        self.old, self.epochs = self.epochs, self.taken()

    @rule(execution=running)
    def a_predecessor_is_refused(self, execution: ExecutionId) -> None:
        with pytest.raises(ShardLost):
            self.opened(self.opened.store.append([self.move(execution, *self.step(execution))], self.old))

    @invariant()
    def the_store_is_where_the_model_is(self) -> None:
        known = list(self.states)
        found = {state.execution: state for state in self.opened(self.opened.store.load_all(known))}
        assert found == self.states

    async def left_open(self) -> list[ExecutionId]:
        return [execution async for page in self.opened.store.open_executions(range(SHARDS)) for execution in page]

    def teardown(self) -> None:
        for execution, events in self.events.items():
            stored = self.opened(self.opened.store.read(TENANT, execution))
            assert [(one.version, one.event) for one in stored] == list(enumerate(events, start=1))
            listed = self.opened(self.opened.listed.get(TENANT, execution))
            state = self.states[execution]
            assert (listed.status, listed.ended_at_ms) == (state.status, state.ended_at_ms)
        still_open = set(self.opened(self.left_open()))
        assert still_open & set(self.states) == {one for one, state in self.states.items() if not state.ended}


def test_the_store_behaves_like_a_dictionary(database_dsn: str) -> None:
    opened = Opened(database_dsn)
    try:
        run_state_machine_as_test(
            type("OpenedStore", (Store,), {"opened": opened}),
            settings=settings(max_examples=12, stateful_step_count=15, deadline=None, database=None, derandomize=True),
        )
    finally:
        opened.close()
