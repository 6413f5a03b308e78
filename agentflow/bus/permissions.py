"""Who may say and hear what on the bus, and the part of a NATS server's configuration that holds them to it. Pure.

A control plane may do everything. A worker may take steps from the mailboxes of its own agents in its own pool and no
others, report results, ask the control plane its questions, and hear what is said to the workers of its pool: it can
neither read what others are sent, nor speak for another tenant, nor touch a stream. Answers come to inboxes under its
own name, so nobody can listen to another's.
"""

import json
import re
from collections.abc import Sequence

import msgspec

from agentflow.bus import subjects
from agentflow.errors import Invalid
from agentflow.ids import AgentName

CONTROL_PLANE = "control-plane"
WORKER = "worker"
# What a worker says or asks, and what it is told or asked, in its own pool.
_SAID = (
    subjects.TOOL_CALLS,
    subjects.TOOL_AUDIT,
    subjects.TOOL_ANOMALY,
    subjects.TOOL_DEFINITIONS,
    subjects.HEARTBEATS,
    subjects.AGENT_STATES,
    subjects.step_claims("*"),
    subjects.direct_results("*"),
)
_HEARD = (subjects.WORKER_CONTROL, subjects.TOOL_TESTS, subjects.ALL_WORKER_LINES)
_USER = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)


class UnusableUser(Invalid):
    code = "AF2312"

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{name!r} cannot be the name of a user of the bus.",
            hint="Use 1 to 64 letters, digits, dashes and underscores.",
        )


class BusUser(msgspec.Struct, frozen=True):
    name: str
    password: str
    publish: tuple[str, ...] | None = None  # None: everything
    subscribe: tuple[str, ...] | None = None

    def __repr__(self) -> str:
        return f"BusUser({self.name})"


def inbox_prefix(user: str) -> str:
    """What the subjects of answers to a user begin with."""
    if not _USER.fullmatch(user):
        raise UnusableUser(user)
    return f"_INBOX_{user}"


def control_plane_user(password: str) -> BusUser:
    return BusUser(CONTROL_PLANE, password)


def worker_user(name: str, password: str, pool: str, agents: Sequence[str] | None = None) -> BusUser:
    """`agents` are those it hosts; None lets it host any, as the one worker of an embedded platform does."""
    inbox, api = inbox_prefix(name), "$JS.API"
    mailboxes = [("*", "*")]
    if agents is not None:
        mailboxes = [(agent, subjects.mailbox_name(pool, AgentName(agent))) for agent in agents]
    of_consumers = [
        subject
        for agent, consumer in mailboxes
        for subject in (
            # With what it filters by in the subject: the server holds the request to it.
            f"{api}.CONSUMER.CREATE.{subjects.AGENTS}.{consumer}.agents.{pool}.{agent}.in",
            f"{api}.CONSUMER.INFO.{subjects.AGENTS}.{consumer}",
            f"{api}.CONSUMER.MSG.NEXT.{subjects.AGENTS}.{consumer}",
            f"$JS.ACK.{subjects.AGENTS}.{consumer}.>",
        )
    ]
    return BusUser(
        name,
        password,
        publish=(
            *of_consumers,
            *(f"{api}.STREAM.INFO.{stream.name}" for stream in subjects.STREAMS),
            f"workflows.*.in.*.{pool}",
            *(f"agents.{pool}.{agent}.out" for agent, _ in mailboxes),
            *(subjects.of_pool(stem, pool) for stem in _SAID),
        ),
        subscribe=(f"{inbox}.>", *(subjects.of_pool(stem, pool) for stem in _HEARD)),
    )


def server_configuration(users: Sequence[BusUser]) -> str:
    """For `nats-server -c`: who there is, and nobody else."""
    written = []
    for user in users:
        inbox_prefix(user.name)  # refuses a name that could not be written here
        lines = [f"user: {json.dumps(user.name)}", f"password: {json.dumps(user.password)}"]
        if user.publish is not None and user.subscribe is not None:
            lines.append(
                "permissions: {"
                f" publish: {{ allow: {json.dumps(list(user.publish))} }},"
                f" subscribe: {{ allow: {json.dumps(list(user.subscribe))} }},"
                ' allow_responses: { max: 1, expires: "2m" } }'
            )
        written.append("    { " + ", ".join(lines) + " }")
    return "authorization {\n  users = [\n" + "\n".join(written) + "\n  ]\n}\n"
