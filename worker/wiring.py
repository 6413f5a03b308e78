"""The worker's composition root: settings in, a runtime with its bus, agents and sandbox out.

The only file here that knows settings and adapters together; leaving the block takes everything down in reverse.
"""

import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from importlib.metadata import entry_points
from pathlib import Path
from typing import assert_never

import msgspec

from agentflow import limits
from agentflow.bus.nats_jetstream import jetstream
from agentflow.clock import SystemClock
from agentflow.contracts.step import TOOLS_AGENT
from agentflow.errors import Rejected
from agentflow.ids import AgentName, UlidSource
from agentflow.settings import Settings
from sandbox.policy import MIB, ToolNeeds, compile_profile
from sandbox.runner import open_sandbox
from worker.agents.agent import Agent
from worker.agents.function import FunctionAgent, load_function
from worker.agents.http import HttpAgent
from worker.agents.tools import HostedTool, ToolsAgent
from worker.agents_file import AgentsFile, FunctionAgentSpec, HttpAgentSpec, ToolSpec, read_agents_file
from worker.mailbox import Mailbox
from worker.runtime import Runtime

_ENTRY_POINTS = "agentflow.agents"
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


@asynccontextmanager
async def worker(settings: Settings) -> AsyncIterator[Runtime]:
    clock = SystemClock()
    ids = UlidSource(clock.now_ms)
    worker_id = ids.worker()
    hosted = await hosted_agents(settings.agents_file, sandbox_backend=settings.sandbox)
    async with jetstream(settings.nats_url, name=worker_id, replicas=settings.nats_replicas) as bus:
        mailboxes = [
            Mailbox(
                name,
                host.agent,
                concurrency=host.concurrency,
                ack_wait_s=settings.ack_wait_s,
                bus=bus,
                worker=worker_id,
                ids=ids,
                clock=clock,
            )
            for name, host in sorted(hosted.items())
        ]
        yield Runtime(mailboxes, bus=bus, clock=clock, worker=worker_id, drain_s=settings.drain_s)


async def hosted_agents(path: Path | None, *, sandbox_backend: str) -> dict[AgentName, Hosted]:
    """Installed agents, and those of the agents file, which wins where both use a name."""
    hosted = _installed()
    if path is not None:
        file = read_agents_file(path)
        folder = _importable(path)
        hosted.update(_from_file(file))
        if file.tools:
            tools = await _tools(file.tools, folder, sandbox_backend)
            hosted[TOOLS_AGENT] = Hosted(tools, _TOOL_CONCURRENCY)
    if not hosted:
        raise NoAgents
    return hosted


def _installed() -> dict[AgentName, Hosted]:
    return {
        AgentName(entry.name): _function_agent(entry.name, entry.value, limits.AGENT_CONCURRENCY_DEFAULT)
        for entry in entry_points(group=_ENTRY_POINTS)
    }


def _importable(path: Path) -> str:
    """The agents file's folder, from now on a place that modules are imported from, as a script's own would be."""
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    return folder


def _from_file(file: AgentsFile) -> dict[AgentName, Hosted]:
    hosted = {}
    for name, spec in file.agents.items():
        match spec:
            case FunctionAgentSpec():
                hosted[AgentName(name)] = _function_agent(name, spec.call, spec.concurrency)
            case HttpAgentSpec():
                agent = HttpAgent(
                    spec.url, timeout_s=spec.timeout / 1000, headers=spec.headers, concurrency=spec.concurrency
                )  # fmt: skip
                hosted[AgentName(name)] = Hosted(agent, spec.concurrency)
            case _:
                assert_never(spec)
    return hosted


def _function_agent(name: str, call: str, concurrency: int) -> Hosted:
    return Hosted(FunctionAgent(name, load_function(name, call), concurrency=concurrency), concurrency)


async def _tools(specs: Mapping[str, ToolSpec], folder: str, backend: str) -> ToolsAgent:
    sandbox = await open_sandbox(backend)
    tools = {}
    for name, spec in specs.items():
        needs = ToolNeeds(
            name=name,
            timeout_s=spec.timeout / 1000,
            memory_bytes=spec.memory_mb * MIB,
            permissions=tuple(spec.permissions),
            environment=spec.environment,
        )
        profile = compile_profile(needs, backend=sandbox.backend, isolation=sandbox.isolation, folder=folder)
        tools[name] = HostedTool(spec.call, (folder,), profile)
    return ToolsAgent(tools, sandbox=sandbox)
