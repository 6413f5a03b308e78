"""A deployment whose processes a test starts one by one, each on lines of its own choosing, and breaks.

What its agents do is written to a file as it happens; what its clients were told is kept; and once nothing is broken
any more, `check` holds both and the database against the invariants.
"""

import os
import re
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentflow.devstack.nats import NatsServer
from agentflow.devstack.process import ChildProcess
from agentflow.errors import AgentFlowError
from agentflow.ids import ExecutionId
from agentflow.sdk.client import Client
from agentflow.settings import inherited_environment
from agentflow.testing import eventually
from tests.faults.evidence import Evidence, assert_nothing_left
from tests.invariants.history import Asked, History
from tests.invariants.leftovers import Host

LEASE_S = 2.0
NOTICED_S = 2.0  # on a busy machine, until the log says what is so

_PLANE_READY = re.compile(r'^(?=.*"event":\s*"control_plane\.ready").*"http":\s*"(?P<url>[^"]+)', re.MULTILINE)
_WORKER_READY = re.compile(r'"event":\s*"worker\.ready"')

AGENTS = """
import asyncio
import os
from pathlib import Path

HERE = Path(__file__).parent


def _note(name, context):
    line = f"{context.execution_id} {name} {context.attempt} {context.effect_key}\\n".encode()
    log = os.open(HERE / "ran.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(log, line)
    os.close(log)


async def quick(input, context):
    _note("quick", context)
    return {"n": 1}


async def patient(input, context):
    _note("patient", context)
    while not (HERE / "go").exists():
        await asyncio.sleep(0.02)
    return {"n": 1}
"""

AGENTS_FILE = """
apiVersion: agentflow/v1
kind: Agents
agents:
  quick: {type: function, call: "breakable:quick"}
  patient: {type: function, call: "breakable:patient", concurrency: 50}
"""

ONE_QUICK = "fsm: {initial_state: a, final_states: [a], states: {a: {agent: quick}}}"
WORKFLOWS = {
    "line": "fsm: {initial_state: a, final_states: [c], states: {a: {agent: quick, on_success: b}, "
    "b: {agent: patient, timeout: 120s, on_success: c}, c: {agent: quick}}}",
    "nap": "fsm: {initial_state: a, final_states: [c], states: {a: {agent: quick, on_success: b}, "
    "b: {wait: {duration: 1s}, on_success: c}, c: {agent: quick}}}",
    "hasty": "fsm: {initial_state: a, final_states: [b], states: {a: {agent: quick, timeout: 2s, on_success: b}, "
    "b: {agent: quick, timeout: 2s}}}",
    "crowd": "fsm: {initial_state: a, final_states: [a], states: "
    "{a: {map: {over: '${input.items}', concurrency: 100, do: {agent: patient, timeout: 120s}}}}}",
    "quick": ONE_QUICK,
    "limited": f"concurrency: 4, {ONE_QUICK}",
}


@dataclass
class Plane:
    process: ChildProcess
    client: Client

    def stop(self) -> None:
        os.kill(self.process.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        os.kill(self.process.pid, signal.SIGCONT)

    def kill(self) -> None:
        self.process.kill()

    @property
    def shards(self) -> int:
        """How many it holds, by its own words."""
        said = re.findall(r'"held":\s*(\d+).*"event":\s*"shards\.(?:gained|lost)"', self.process.output())
        return int(said[-1]) if said else 0


@dataclass
class Deployment:
    folder: Path
    dsn: str
    nats: NatsServer
    stack: AsyncExitStack
    evidence: Evidence

    async def plane(self, *, dsn: str = "", nats_url: str = "", module: str = "control_plane", **env: str) -> Plane:
        process = await self._start(module, _PLANE_READY, nats_url, AF_DB_DSN=dsn or self.dsn, **env)
        assert process.ready_match is not None
        key = (self.folder / "admin.key").read_text().strip()
        client = await self.stack.enter_async_context(Client(process.ready_match["url"], api_key=key))
        await eventually(client.ready, within_s=20)
        if not (await client.workflows()).items:
            for name, spec in WORKFLOWS.items():
                head = f"apiVersion: agentflow/v1\nkind: Workflow\nmetadata: {{name: {name}, version: 1.0.0}}\n"
                await client.push_workflow(f"{head}spec: {{planner: fsm, {spec}}}\n")
        return Plane(process, client)

    async def worker(self, *, nats_url: str = "", **env: str) -> ChildProcess:
        return await self._start("worker", _WORKER_READY, nats_url, **env)

    async def _start(self, module: str, ready: re.Pattern[str], nats_url: str, **env: str) -> ChildProcess:
        name = f"{module.rpartition('.')[2]}-{len(list(self.folder.glob('*.log')))}"
        environment = {
            **inherited_environment(),
            "AF_HOME": str(self.folder / name),
            "AF_BOOTSTRAP_FILE": str(self.folder / "admin.key"),
            "AF_ARTIFACTS_URL": f"file://{self.folder / 'artifacts'}",
            "AF_NATS_URL": nats_url or self.nats.url,
            "AF_AGENTS_FILE": str(self.folder / "agents.yaml"),
            "AF_HTTP_LISTEN": "127.0.0.1:0",
            "AF_GRPC_LISTEN": "127.0.0.1:0",
            "AF_LEASE_S": str(LEASE_S),
            "AF_RESEND_AFTER_S": "1",
            "AF_ACK_WAIT_S": "2",
            "AF_WORKER_LOST_S": "3",
            "AF_DRAIN_S": "1",
            "AF_LOG_FORMAT": "json",
            **env,
        }
        process = await ChildProcess.start(
            name,
            [sys.executable, "-m", module],
            log=self.folder / f"{name}.log",
            env=environment,
            ready=ready,
            ready_within_s=90,
            grace_s=3,
        )
        self.stack.push_async_callback(_stop, process)
        return process

    async def start(self, plane: Plane, workflow: str, input: Any = None, *, key: str | None = None) -> str | None:
        """As a client does it: what was answered is kept, and no answer is no refusal."""
        body = {"workflow": workflow, "input": input or {}}
        try:
            started = await plane.client.execute(workflow, input or {}, key=key)
        except (AgentFlowError, OSError):
            self.evidence.asked.append(Asked("start", "unknown", key=key, body=body))
            return None
        self.evidence.asked.append(Asked("start", "accepted", ExecutionId(started.execution_id), key=key, body=body))
        return started.execution_id

    def ran(self, agent: str) -> int:
        return Counter(run[1] for run in self.evidence.runs())[agent]

    def let_go(self) -> None:
        (self.folder / "go").touch()

    async def check(self, *, within_s: float = 40) -> History:
        """Nothing is broken any more: everything ends, and the invariants hold."""
        return await self.evidence.judged(within_s=within_s)


async def _stop(process: ChildProcess) -> None:
    if process.exit_code is None:
        os.kill(process.pid, signal.SIGCONT)
    await process.stop()


@asynccontextmanager
async def deployed(folder: Path, dsn: str, nats: NatsServer) -> AsyncIterator[Deployment]:
    here = folder / "deployment"
    here.mkdir()
    (here / "breakable.py").write_text(AGENTS)
    (here / "agents.yaml").write_text(AGENTS_FILE)
    host = Host(here)
    async with AsyncExitStack() as stack:
        yield Deployment(here, dsn, nats, stack, Evidence(dsn, nats.url, here / "ran.log"))
    assert_nothing_left(host.left_behind())
