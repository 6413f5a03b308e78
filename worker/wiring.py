"""The worker's composition root: settings in, a runtime with its bus, agents and sandbox out.

The only file here that knows settings and adapters together; leaving the block takes everything down in reverse.
"""

import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, assert_never
from urllib.parse import parse_qs, urlsplit

import msgspec
import structlog

from agentflow import limits
from agentflow.artifacts.claim_check import ClaimCheck
from agentflow.artifacts.opening import open_artifacts
from agentflow.bus import subjects
from agentflow.bus.nats_jetstream import jetstream
from agentflow.clock import Clock, SystemClock
from agentflow.contracts.step import TOOLS_AGENT, ReleaseState
from agentflow.errors import Rejected
from agentflow.ids import AgentName, UlidSource
from agentflow.ports import MessageBus
from agentflow.settings import Settings
from sandbox.policy import MIB
from sandbox.runner import DockerOptions, Sandboxes
from worker.agents.agent import Agent
from worker.agents.function import FunctionAgent
from worker.agents.hooks import AgentLife, HookedAgent, has_hooks
from worker.agents.http import HttpAgent
from worker.agents.loading import AgentNotImportable, UnloadedAgent, load
from worker.agents_file import (
    AgentsFile,
    AgentSpec,
    FunctionAgentSpec,
    HostedToolSpec,
    HttpAgentSpec,
    StateSpec,
    read_agents_file,
)
from worker.health import health_pages
from worker.large_values import LargeValues
from worker.mailbox import Mailbox
from worker.policies.circuit import CircuitRules
from worker.policies.guard import Guard, GuardedAgent, Policy, QuickRetry
from worker.policies.rate import RateRules
from worker.reporter import Reporter
from worker.runtime import Runtime
from worker.spool import open_spool
from worker.states.desk import StateDesk
from worker.states.stateful import StatefulAgent, StateRules
from worker.tools.agent import ToolsAgent
from worker.tools.authorities import PolicyFile
from worker.tools.claiming import CallClaims
from worker.tools.definitions import Definitions
from worker.tools.opening import open_egress, open_tools
from worker.tools.records import ToolRecords
from worker.tools.testing import answer_tests
from worker.tools.workspaces import Workspaces

log = structlog.get_logger(__name__)

_ENTRY_POINTS = "agentflow.agents"
_PORTS = {"nats": 4222, "tls": 4222, "postgres": 5432, "http": 80, "https": 443}
_TOOL_CONCURRENCY = 16  # each is a process of its own: more of them at once only wait for each other


class NoAgents(Rejected):
    code = "AF1302"

    def __init__(self) -> None:
        super().__init__(
            "This worker has no agents to host.",
            hint="Set AF_AGENTS_FILE to an agents file (templates/support/agents.yaml is one), or install a package "
            f"with entry points in the group {_ENTRY_POINTS}.",
        )


class Hosted(msgspec.Struct, frozen=True):
    """An agent and how many of its steps may run here at once."""

    agent: Agent
    concurrency: int
    remembering: StatefulAgent | None = None  # the same agent without its guards, where it has states
    spool_first: bool = False  # its results go to disk before they are published


@asynccontextmanager
async def worker(settings: Settings) -> AsyncIterator[Runtime]:
    clock = SystemClock()
    ids = UlidSource(clock.now_ms)
    worker_id = ids.worker()
    pool = settings.worker_pool()
    claims = CallClaims(worker=worker_id, pool=pool, new_id=ids.ulid, clock=clock)
    desk = StateDesk(clock=clock, worker=worker_id, pool=pool)
    artifacts = await open_artifacts(settings.artifacts_url, settings.key_ring())
    workspaces = Workspaces(settings.home.resolve() / "workspaces", ledger=desk, store=artifacts, clock=clock)
    footing = ToolFooting(
        settings, ToolRecords(ids=ids, clock=clock, worker=worker_id, pool=pool), workspaces, claims, clock
    )
    hosted = await hosted_agents(settings.agents_file, footing, clock=clock, desk=desk)
    spool = open_spool(settings.spool_dir, bytes_max=settings.spool_mb * MIB)
    values = LargeValues(ClaimCheck(artifacts))
    async with jetstream(
        settings.nats_url,
        name=worker_id,
        replicas=settings.nats_replicas,
        tends_streams=False,
        tls=settings.nats_tls(),
    ) as bus:
        await footing.connect(bus)
        desk.connect(bus)
        reporter = Reporter(bus=bus, clock=clock, spool=spool)
        mailboxes = [
            Mailbox(
                name,
                host.agent,
                pool=pool,
                concurrency=host.concurrency,
                ack_wait_s=settings.ack_wait_s,
                bus=bus,
                reporter=reporter,
                worker=worker_id,
                ids=ids,
                clock=clock,
                spool_first=host.spool_first,
                values=values,
            )
            for name, host in sorted(hosted.items())
        ]
        remembering = [host.remembering for host in hosted.values() if host.remembering is not None]

        def release(order: ReleaseState) -> None:
            for agent in remembering:
                agent.release(order)

        runtime = Runtime(
            mailboxes,
            bus=bus,
            reporter=reporter,
            clock=clock,
            worker=worker_id,
            pool=pool,
            drain_s=settings.drain_s,
            release=release,
            sandbox=settings.sandbox if TOOLS_AGENT in hosted else "",
        )

        def parts() -> dict[str, bool]:
            return {"bus": bus.connected, "taking_steps": runtime.is_taking}

        async with health_pages(settings.worker_health_listen, parts) as address:
            log.info("worker.health", worker=worker_id, address=address)
            yield runtime


class ToolFooting:
    """What the tools of this worker stand on; they are made before the bus is there, and connected to it once it is."""

    def __init__(
        self, settings: Settings, records: ToolRecords, workspaces: Workspaces, claims: CallClaims, clock: Clock
    ) -> None:
        self._settings = settings
        self._records = records
        self._workspaces = workspaces
        self._clock = clock
        self._definitions = Definitions(settings.worker_pool())
        self._claims = claims
        self._agent: ToolsAgent | None = None

    async def tools(self, file: AgentsFile, folder: str) -> ToolsAgent:
        settings = self._settings
        docker = DockerOptions(host=settings.docker_host, image=settings.sandbox_image)
        sandboxes = Sandboxes(settings.sandbox, docker=docker)
        await sandboxes.of(settings.sandbox)  # a worker whose own backend does not stand does not start
        await self._workspaces.sweep()
        self._agent = open_tools(
            file.tools,
            registered=file.registered_tools,
            folder=folder,
            sandboxes=sandboxes,
            authorities=PolicyFile(file.policy),
            egress=open_egress(
                private=settings.egress_private,
                own=own_servers(settings),
                secrets=settings.secrets_dir,
                records=self._records,
            ),
            records=self._records,
            definitions=self._definitions,
            claims=self._claims,
            workspaces=self._workspaces,
            clock=self._clock,
        )
        return self._agent

    async def connect(self, bus: MessageBus) -> None:
        if self._agent is not None:
            self._records.publish_to(bus)
            self._definitions.ask(bus)
            self._claims.ask(bus)
            tests = subjects.of_pool(subjects.TOOL_TESTS, self._settings.worker_pool())
            await bus.answer(tests, answer_tests(self._agent), group="tools")


def own_servers(settings: Settings) -> list[tuple[str, int]]:
    """AgentFlow's own addresses, which no tool reaches, whatever it is granted and whatever range is open to it."""
    addresses = [settings.nats_url, settings.db_dsn, settings.db_migrate_dsn or "", settings.api_url]
    addresses += [
        f"tcp://{listen}" for listen in (settings.http_listen, settings.grpc_listen, settings.worker_health_listen)
    ]
    addresses += [settings.docker_host, parse_qs(urlsplit(settings.artifacts_url).query).get("endpoint", [""])[0]]
    found = []
    for parts in map(urlsplit, addresses):
        port = parts.port or _PORTS.get(parts.scheme)
        if parts.hostname and port:
            found.append((parts.hostname, port))
    return found


async def hosted_agents(
    path: Path | None, footing: ToolFooting, *, clock: Clock, desk: StateDesk
) -> dict[AgentName, Hosted]:
    """Installed agents, and those of the agents file, which wins where both use a name."""
    hosted = _installed()
    if path is not None:
        file = read_agents_file(path)
        folder = _importable(path)
        hosted.update(_from_file(file, clock, desk))
        if file.tools or file.registered_tools is not None:
            tools = await footing.tools(file, folder)
            guards = {name: guard for name, spec in file.tools.items() if (guard := _guard(name, spec, clock))}
            hosted[TOOLS_AGENT] = Hosted(GuardedAgent(tools, None, tools=guards), _TOOL_CONCURRENCY)
    if not hosted:
        raise NoAgents
    return hosted


def _installed() -> dict[AgentName, Hosted]:
    concurrency = limits.AGENT_CONCURRENCY_DEFAULT
    return {
        AgentName(entry.name): Hosted(_python_agent(entry.name, entry.value, concurrency), concurrency)
        for entry in entry_points(group=_ENTRY_POINTS)
    }


def _importable(path: Path) -> str:
    """The agents file's folder, from now on a place that modules are imported from, as a script's own would be."""
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    return folder


def _from_file(file: AgentsFile, clock: Clock, desk: StateDesk) -> dict[AgentName, Hosted]:
    hosted = {}
    for name, spec in file.agents.items():
        agent = _agent(name, spec, clock, desk)
        guard = _guard(name, spec, clock)
        hosted[AgentName(name)] = Hosted(
            GuardedAgent(agent, guard) if guard else agent,
            spec.concurrency,
            remembering=agent if isinstance(agent, StatefulAgent) else None,
            spool_first=spec.spool == "always",
        )
    return hosted


def _agent(name: str, spec: AgentSpec, clock: Clock, desk: StateDesk) -> Agent:
    match spec:
        case FunctionAgentSpec():
            if spec.state is not None:
                return _stateful_agent(AgentName(name), spec, spec.state, clock, desk)
            return _python_agent(name, spec.call, spec.concurrency)
        case HttpAgentSpec():
            return HttpAgent(
                spec.url, timeout_s=spec.timeout / 1000, headers=spec.headers, concurrency=spec.concurrency
            )
        case _:
            assert_never(spec)


def _python_agent(name: str, call: str, concurrency: int) -> Agent:
    made = _maker(name, call, concurrency)
    return made(AgentLife(name))


def _stateful_agent(name: AgentName, spec: FunctionAgentSpec, state: StateSpec, clock: Clock, desk: StateDesk) -> Agent:
    rules = StateRules(state.key, state.checkpoint, state.every / 1000, state.hibernate_after / 1000)
    # One state does one step at a time, so an instance needs no more than its own thread.
    return StatefulAgent(name, _maker(name, spec.call, 1), rules, desk=desk, clock=clock)


def _maker(name: str, call: str, concurrency: int) -> Callable[[AgentLife], Agent]:
    try:
        found: Any = load(name, call)
    except AgentNotImportable as error:
        log.error("agent.not_importable", agent=name, call=call, story=error.story)  # noqa: TRY400
        unloaded = UnloadedAgent(error)
        return lambda _: unloaded
    if has_hooks(found):
        return lambda life: HookedAgent(found, life, concurrency=concurrency)
    return lambda _: FunctionAgent(name, found, concurrency=concurrency)


def _guard(name: str, spec: AgentSpec | HostedToolSpec, clock: Clock) -> Guard | None:
    """None where the file asks for nothing: a call then costs nothing more."""
    retry, rate, circuit = spec.retry, spec.rate_limit, spec.circuit
    policy = Policy(
        retry=QuickRetry(retry.tries, retry.initial / 1000, retry.multiplier, retry.max / 1000)
        if retry
        else QuickRetry(),
        rate=RateRules(rate.calls, rate.per / 1000, rate.burst) if rate else None,
        circuit=CircuitRules(circuit.failures, circuit.window / 1000, circuit.open_for / 1000, circuit.probes)
        if circuit
        else None,
        bulkhead=spec.bulkhead,
    )
    return None if policy.is_empty else Guard(name, policy, clock=clock)
