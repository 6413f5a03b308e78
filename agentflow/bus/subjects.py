"""The names on the bus: streams, subjects and durable consumers. Pure.

Used by whoever publishes or subscribes, and by `nats_jetstream`, which creates what `STREAMS` lists. An execution
id never enters a subject: a stream keeps state for each one it has seen.
"""

import re
from functools import lru_cache

import msgspec

from agentflow import limits
from agentflow.errors import Invalid
from agentflow.ids import AgentName
from agentflow.ports import Consumer

_DAY_S = 24 * 3600

MESSAGES = "AF_MESSAGES"
AGENTS = "AF_AGENTS"
AUDIT = "AF_AUDIT"

ALL_WORKFLOWS_IN = "workflows.*.in.*.*"
ALL_WORKFLOWS_OUT = "workflows.*.out.*"  # committed events; `listen` here for a live feed
IDENTITY_CHANGED = "identity.changed"  # broadcast between control planes: forget what credentials proved

# Each is followed by the pool of the worker that speaks there or is spoken to (`of_pool`).
TOOL_CALLS = "tools.calls"
TOOL_AUDIT = "tools.audit"
TOOL_ANOMALY = "tools.anomaly"
TOOL_DEFINITIONS = "tools.definitions"  # asked by workers, answered by the control plane
TOOL_TESTS = "tools.tests"  # asked by the control plane, answered by workers that host tools
HEARTBEATS = "workers.heartbeat"  # broadcast and not stored: only the newest one matters
WORKER_CONTROL = "workers.control"  # broadcast: what every worker of a pool should hear (contracts.step.WorkerControl)
AGENT_STATES = "workers.states"  # asked by workers, answered by any control plane (contracts.agent_state)


class StreamSpec(msgspec.Struct, frozen=True):
    name: str
    subjects: tuple[str, ...]
    max_age_s: float


STREAMS = (
    StreamSpec(MESSAGES, (ALL_WORKFLOWS_IN, ALL_WORKFLOWS_OUT), max_age_s=7 * _DAY_S),
    StreamSpec(AGENTS, ("agents.*.*.in", "agents.*.*.out"), max_age_s=3 * _DAY_S),
    StreamSpec(AUDIT, (f"{TOOL_CALLS}.*", f"{TOOL_AUDIT}.*", f"{TOOL_ANOMALY}.*"), max_age_s=30 * _DAY_S),
)

_AGENT = re.compile(r"[A-Za-z0-9_-]{1,64}")
_WORKFLOW = re.compile(r"[a-z0-9_-]{1,128}")
_WORKER = re.compile(r"[A-Za-z0-9_-]{1,64}")
_POOL = re.compile(r"_shared|[a-z0-9][a-z0-9-]{0,62}")
_WORKER_LINE = "workers.line"
ALL_WORKER_LINES = f"{_WORKER_LINE}.*"  # in a permission; of a pool


class UnusableName(Invalid):
    code = "AF2301"

    def __init__(self, what: str, name: str, allowed: str) -> None:
        super().__init__(
            f"The {what} name {name!r} cannot be part of a bus subject.",
            hint=f"Use {allowed}; dots, spaces and wildcards have a meaning of their own there.",
        )


def of_pool(stem: str, pool: str) -> str:
    """Where the workers of a pool speak or are spoken to."""
    return f"{stem}.{_pool_token(pool)}"


@lru_cache(maxsize=4096)
def workflow_in(workflow: str, shard: int, pool: str) -> str:
    """What workers of a pool report to the owner of a shard."""
    return f"workflows.{_workflow_token(workflow)}.in.{shard}.{_pool_token(pool)}"


def shard_feed(shard: int) -> str:
    """Committed events of every workflow in a shard; `listen` there."""
    return f"workflows.*.out.{shard}"


def workflow_out(workflow: str, shard: int) -> str:
    """Committed events, for live feeds and replay."""
    return f"workflows.{_workflow_token(workflow)}.out.{shard}"


def direct_results(replica: str) -> str:
    """Where a control plane takes results itself, and answers once they are committed; not stored. Of a pool."""
    return f"control.results.{replica}"


def worker_line(worker: str) -> str:
    """Asked of one worker, which need not say anything there: that somebody listens is the answer. Of a pool."""
    if not _WORKER.fullmatch(worker):
        raise UnusableName("worker", worker, "1 to 64 letters, digits, `_` and `-`")
    return f"{_WORKER_LINE}.{worker}"


def step_claims(shard: int | str) -> str:
    """Asked by workers before a call that must not be made twice; answered by the shard's owner. Of a pool."""
    return f"control.claims.{shard}"


@lru_cache(maxsize=4096)
def agent_in(pool: str, agent: AgentName) -> str:
    return f"agents.{_pool_token(pool)}.{_agent_token(agent)}.in"


def agent_out(pool: str, agent: AgentName) -> str:
    return f"agents.{_pool_token(pool)}.{_agent_token(agent)}.out"


def agent_mailbox(pool: str, agent: AgentName, *, concurrency: int, ack_wait_s: float = limits.ACK_WAIT_S) -> Consumer:
    """The steps sent to an agent of a pool; all workers there that host it share this one consumer.

    `concurrency` is each worker's own: what a dead one had must not keep the living from taking steps.
    """
    return Consumer(
        stream=AGENTS,
        name=mailbox_name(pool, agent),
        subjects=(agent_in(pool, agent),),
        in_flight_max=concurrency,
        unacked_max=limits.AGENT_UNACKED_MAX,
        ack_wait_s=ack_wait_s,
    )


def mailbox_name(pool: str, agent: AgentName) -> str:
    return f"agent_{_agent_token(agent)}@{_pool_token(pool)}"  # neither has an `@`: no two mailboxes share a name


def shard_inbox(shard: int, *, ack_wait_s: float = limits.SHARD_ACK_WAIT_S) -> Consumer:
    """What reaches the owner of a shard; the next owner goes on with the same consumer."""
    return Consumer(
        stream=MESSAGES,
        name=f"shard_{shard}",
        subjects=(f"workflows.*.in.{shard}.*",),
        in_flight_max=limits.INBOX_IN_FLIGHT_MAX,
        unacked_max=2 * limits.INBOX_IN_FLIGHT_MAX,  # the last owner's too, should it have died
        ack_wait_s=ack_wait_s,
    )


def tool_audit_reader(*, ack_wait_s: float = limits.ACK_WAIT_S) -> Consumer:
    """What workers tell of tools, for the audit trail; all control planes share this one consumer."""
    return Consumer(
        stream=AUDIT,
        name="audit_trail",
        subjects=(f"{TOOL_AUDIT}.*",),
        in_flight_max=limits.AUDIT_IN_FLIGHT_MAX,
        unacked_max=8 * limits.AUDIT_IN_FLIGHT_MAX,  # so many control planes
        ack_wait_s=ack_wait_s,
    )


def _workflow_token(workflow: str) -> str:
    if not _WORKFLOW.fullmatch(workflow):
        raise UnusableName("workflow", workflow, "1 to 128 of the letters a-z, digits, `_` and `-`")
    return workflow


def _agent_token(agent: AgentName) -> str:
    if not _AGENT.fullmatch(agent):
        raise UnusableName("agent", agent, "1 to 64 letters, digits, `_` and `-`")
    return agent


def _pool_token(pool: str) -> str:
    if not _POOL.fullmatch(pool):
        raise UnusableName("tenant", pool, "1 to 63 of the letters a-z, digits and `-`")
    return pool
