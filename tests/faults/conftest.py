"""A small world to break: three agents whose runs are written to a file, and a step that waits for a sign."""

from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from agentflow.devstack.platform import EmbeddedPlatform, embedded_platform
from agentflow.errors import AgentFlowError
from agentflow.ids import ExecutionId
from agentflow.sdk.client import Client
from agentflow.sdk.models import ExecutionEvent, StartedExecution
from tests.faults.evidence import Evidence, assert_nothing_left
from tests.invariants.history import Asked
from tests.invariants.leftovers import Host

AGENTS = """
import asyncio
from pathlib import Path

HERE = Path(__file__).parent

def _note(name, context):
    with (HERE / "ran.log").open("a") as log:
        log.write(f"{context.execution_id} {name} {context.attempt} {context.effect_key}\\n")

async def quick(input, context):
    _note("quick", context)
    return {"n": input.get("n", 0) + 1}

async def patient(input, context):
    _note("patient", context)
    while not (HERE / "go").exists():
        await asyncio.sleep(0.02)
    return {"n": input["n"] + 1}
"""

AGENTS_FILE = """
apiVersion: agentflow/v1
kind: Agents
agents:
  quick: {type: function, call: "breakable:quick"}
  patient: {type: function, call: "breakable:patient"}
"""

WORKFLOW = """
apiVersion: agentflow/v1
kind: Workflow
metadata: {name: breakable, version: 1.0.0}
spec:
  planner: fsm
  fsm:
    initial_state: before
    final_states: [after]
    states:
      before: {agent: quick, input: {n: "${input.n}"}, on_success: held}
      held: {agent: patient, input: {n: "${output.n}"}, timeout: 60s, on_success: after}
      after: {agent: quick, input: {n: "${output.n}"}}
"""


class NotingClient(Client):
    """Keeps what it was answered: a start that was accepted must never be lost, and no answer is no refusal."""

    evidence: Evidence

    async def execute(self, ref: str, input: Any, **options: Any) -> StartedExecution:
        key, body = options.get("key"), {"workflow": ref, "input": input}
        try:
            started = await super().execute(ref, input, **options)
        except (AgentFlowError, OSError):
            self.evidence.asked.append(Asked("start", "unknown", key=key, body=body))
            raise
        self.evidence.asked.append(Asked("start", "accepted", ExecutionId(started.execution_id), key=key, body=body))
        return started


@dataclass(frozen=True)
class World:
    folder: Path
    platform: EmbeddedPlatform
    client: Client
    evidence: Evidence

    def all_runs(self) -> list[list[str]]:
        return self.evidence.runs()

    def runs(self, execution: str) -> Counter[str]:
        """How often each agent really ran for an execution."""
        return Counter(agent for owner, agent, *_ in self.all_runs() if owner == execution)

    def let_go(self) -> None:
        (self.folder / "go").touch()


@pytest.fixture
def world(tmp_path: Path) -> Callable[..., AbstractAsyncContextManager[World]]:
    """Whatever a test does to it: in the end everything has ended, and the invariants of the failure model hold."""
    (tmp_path / "breakable.py").write_text(AGENTS)
    (tmp_path / "agents.yaml").write_text(AGENTS_FILE)

    @asynccontextmanager
    async def started(**environment: str) -> AsyncIterator[World]:
        quick_recovery = {"AF_ACK_WAIT_S": "2", "AF_RESEND_AFTER_S": "1", **environment}
        host = Host(tmp_path)
        async with (
            embedded_platform(
                tmp_path / "home", agents_file=tmp_path / "agents.yaml", extra_env=quick_recovery
            ) as platform,
            NotingClient(platform.api_url, api_key=platform.api_key) as client,
        ):
            dsn = environment.get("AF_DB_DSN", f"sqlite:///{tmp_path}/home/agentflow.db")
            client.evidence = Evidence(dsn, platform.nats_url, tmp_path / "ran.log")
            await client.push_workflow(WORKFLOW)
            yield World(tmp_path, platform, client, client.evidence)
            await client.evidence.judged(within_s=30)
        assert_nothing_left(host.left_behind())

    return started


@pytest.fixture
def each_outcome_once() -> Callable[[list[ExecutionEvent]], None]:
    """The invariant of every fault test: versions without gap, one start, one end, one outcome for each attempt."""

    def check(events: list[ExecutionEvent]) -> None:
        assert [event.version for event in events] == list(range(1, len(events) + 1))
        assert events[0].type == "execution.started.v1"
        assert events[-1].type == "execution.completed.v1"
        types = Counter(event.type for event in events)
        assert types["execution.started.v1"] == types["execution.completed.v1"] == 1
        outcomes = Counter(
            (event.data["path"], event.data["attempt"])
            for event in events
            if event.type in ("step.succeeded.v1", "step.failed.v1")
        )
        succeeded = Counter(event.data["path"] for event in events if event.type == "step.succeeded.v1")
        assert set(outcomes.values()) == {1}
        assert succeeded == Counter(["before", "held", "after"])

    return check
