"""The client for programs without an event loop: the same calls, each returning when it is done.

A loop of its own, in a thread of its own, runs the asynchronous `Client`; nothing of the contract is written twice.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from types import TracebackType
from typing import Any, Self, TypeVar

import msgspec

from agentflow.sdk.budgets import Budget
from agentflow.sdk.client import Client
from agentflow.sdk.models import (
    Agent,
    AgentDetail,
    CostReport,
    Estimate,
    Execution,
    ExecutionEvent,
    ExecutionSummary,
    LiveEvent,
    MoveVerdict,
    PushedWorkflow,
    Replay,
    Replays,
    StartedExecution,
    TraceView,
    Workflow,
    WorkflowSummary,
)
from agentflow.sdk.snapshots import Snapshot
from agentflow.tls import TlsFiles

T = TypeVar("T")
_END = object()


class BlockingClient:
    """`with BlockingClient("http://127.0.0.1:8080", api_key="afk_…") as af: af.execute("support", {…}, wait=True)`

    What has no method of its own here: `af.call(lambda client: client.tools())`.
    """

    def __init__(
        self,
        api_url: str,
        *,
        token: str | None = None,
        api_key: str | None = None,
        retries: int = 2,
        tls: TlsFiles | None = None,
    ) -> None:
        self._client = Client(api_url, token=token, api_key=api_key, retries=retries, tls=tls)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="agentflow client", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._run(self._client.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._run(self._client.__aexit__(kind, error, trace))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def call(self, ask: Callable[[Client], Awaitable[T]]) -> T:
        """Anything else that the asynchronous client can do."""
        return self._run(ask(self._client))

    def push_workflow(self, text: str | bytes, content_type: str = "application/yaml") -> PushedWorkflow:
        return self._run(self._client.push_workflow(text, content_type))

    def workflow(self, ref: str) -> Workflow:
        return self._run(self._client.workflow(ref))

    def workflows(self, **filters: Any) -> Iterator[WorkflowSummary]:
        """Every one, page by page as they are asked for."""
        return self._iterated(self._client.iter_workflows(**filters))

    def execute(self, ref: str, input: Any, **how: Any) -> StartedExecution:
        """Takes what `Client.execute` takes; with `wait=True` it returns with the result."""
        return self._run(self._client.execute(ref, input, **how))

    def execution(self, execution: str) -> Execution:
        return self._run(self._client.execution(execution))

    def executions(self, **filters: Any) -> Iterator[ExecutionSummary]:
        """Every one that fits, newest first, page by page as they are asked for."""
        return self._iterated(self._client.iter_executions(**filters))

    def cancel(self, execution: str, *, reason: str = "") -> Execution:
        return self._run(self._client.cancel(execution, reason=reason))

    def signal(self, execution: str, name: str, payload: Any = None) -> Execution:
        return self._run(self._client.signal(execution, name, payload))

    def agents(self, **filters: Any) -> Iterator[Agent]:
        """Every one, page by page as they are asked for."""
        return self._iterated(self._client.iter_agents(**filters))

    def agent(self, name: str) -> AgentDetail:
        return self._run(self._client.agent(name))

    def costs(self, *, scope: str = "tenant", period: str = "today") -> CostReport:
        return self._run(self._client.costs(scope=scope, period=period))

    def estimate(self, plan: str) -> Estimate:
        return self._run(self._client.estimate(plan))

    def create_budget(self, scope: str = "tenant", name: str = "", **how: Any) -> Budget:
        """Takes what `Client.budgets.create` takes."""
        return self._run(self._client.budgets.create(scope, name, **how))

    def budgets(self, **filters: Any) -> Iterator[Budget]:
        """Every one that fits, the oldest first."""
        return self._iterated(self._client.budgets.iterate(**filters))

    def budget(self, budget: str) -> Budget:
        return self._run(self._client.budgets.get(budget))

    def update_budget(self, budget: str, **changes: Any) -> Budget:
        """Takes what `Client.budgets.update` takes."""
        return self._run(self._client.budgets.update(budget, **changes))

    def delete_budget(self, budget: str) -> None:
        self._run(self._client.budgets.delete(budget))

    def history(self, execution: str) -> list[ExecutionEvent]:
        return self._run(self._client.history(execution))

    def move(self, execution: str, to: str, **how: Any) -> Execution:
        """Takes what `Client.move` takes."""
        return self._run(self._client.move(execution, to, **how))

    def check_move(self, execution: str, to: str, **how: Any) -> MoveVerdict:
        return self._run(self._client.check_move(execution, to, **how))

    def trace(self, trace_id: str) -> TraceView:
        return self._run(self._client.records.trace(trace_id))

    def replay(self, execution: str, **how: Any) -> Replay:
        """Takes what `Client.records.replay` takes."""
        return self._run(self._client.records.replay(execution, **how))

    def replay_many(self, workflow: str, **how: Any) -> Replays:
        """Takes what `Client.records.replay_many` takes, and returns once all are replayed."""

        async def replayed() -> Replays:
            records = self._client.records
            job = await records.finished((await records.replay_many(workflow, **how)).id)
            return msgspec.convert(job.result, Replays)

        return self._run(replayed())

    def take_snapshot(self, execution: str, **how: Any) -> Snapshot:
        """Takes what `Client.snapshots.take` takes."""
        return self._run(self._client.snapshots.take(execution, **how))

    def snapshots(self, **filters: Any) -> Iterator[Snapshot]:
        """Every one that fits, newest first, page by page as they are asked for."""
        return self._iterated(self._client.snapshots.iterate(**filters))

    def snapshot(self, snapshot: str) -> Snapshot:
        return self._run(self._client.snapshots.show(snapshot))

    def snapshot_content(self, snapshot: Snapshot) -> Iterator[bytes]:
        """Its bytes, chunk by chunk, checked against its digest."""
        return self._iterated(self._client.snapshots.content(snapshot))

    def delete_snapshot(self, snapshot: str) -> None:
        self._run(self._client.snapshots.delete(snapshot))

    def follow(self, execution: str, *, after: int = 0) -> Iterator[ExecutionEvent]:
        """Every event as it is committed, until the execution has ended."""
        return self._iterated(self._client.follow(execution, after=after))

    def watch(
        self, *, execution: str | None = None, workflow: str | None = None, after: int | None = None
    ) -> Iterator[LiveEvent]:
        """Live events, without end."""
        return self._iterated(self._client.watch(execution=execution, workflow=workflow, after=after))

    def _run(self, awaited: Awaitable[T]) -> T:
        async def done() -> T:
            return await awaited

        return asyncio.run_coroutine_threadsafe(done(), self._loop).result()

    def _iterated(self, items: AsyncIterator[T]) -> Iterator[T]:
        async def following() -> Any:
            return await anext(items, _END)

        try:
            while (item := self._run(following())) is not _END:
                yield item
        finally:
            closing = getattr(items, "aclose", None)
            if closing is not None:
                self._run(closing())
