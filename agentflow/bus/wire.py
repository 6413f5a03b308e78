"""What goes over a NATS connection and what comes back, as bytes; pure but for the `Line` it is written to.

`confirmations`, `pull` and `stored` build on it; `nats_connection` provides the `Line`. Written out by hand because
nats-py's own path (a coroutine, a header dict and a Msg for each message) costs more than the message itself.
"""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Protocol

import msgspec

from agentflow.contracts.message import Message
from agentflow.errors import Invalid, Rejected

# Subject, reply subject, payload, headers. Must be quick and must not wait: it is called by the reader itself.
Sink = Callable[[bytes, bytes, bytes, bytes], None]

ACK = b"+ACK"
WORKING = b"+WPI"
TERMINATE = b"+TERM"

_ACK_PREFIX = b"$JS.ACK."
_SUBJECT = re.compile(r"[^\s\x00*>]+")
_TRACE = re.compile(r"(?!0{32})[0-9a-f]{32}")
_SPAN = re.compile(r"(?!0{16})[0-9a-f]{16}")


class Inbox(Protocol):
    """A subject of our own; what is sent to it with one more token reaches the sink."""

    @property
    def subject(self) -> str: ...

    async def close(self) -> None:
        """Take no more. Returns once all that was under way to us has reached the sink."""
        ...


class Line(Protocol):
    """An open connection, as the parts of the bus need it."""

    @property
    def is_connected(self) -> bool: ...

    def send(self, command: bytes) -> None:
        """Write with whatever else is written this turn of the loop; dropped when the line is cut."""
        ...

    async def open_inbox(self, sink: Sink) -> Inbox: ...


class MalformedEnvelope(Invalid):
    code = "AF2302"

    def __init__(self, what: str, text: str) -> None:
        super().__init__(
            f"{text!r} cannot be used as {what} on the bus.",
            hint="Subjects come from `agentflow.bus.subjects`; ids and headers hold no line breaks.",
        )


class MessageTooLarge(Rejected):
    code = "AF2303"

    def __init__(self, size_bytes: int, max_bytes: int) -> None:
        super().__init__(
            f"A message of {size_bytes} bytes is too large for the bus, which takes {max_bytes}.",
            hint="Put the large part into an artifact and send its reference, or make the payload smaller.",
        )


class Status(msgspec.Struct, frozen=True):
    """What the server says about a pull request instead of sending a message."""

    code: int
    text: str
    unused: int | None  # how much of the request's batch ended with it


class Position(msgspec.Struct, frozen=True):
    """Where a delivered message stands, read from its reply subject."""

    deliveries: int
    sequence: int
    pending: int


def publication(subject: str, payload: bytes, *, reply: str = "", headers: bytes = b"") -> bytes:
    where = _checked(subject)
    if not headers:
        return b"PUB %b %b %d\r\n%b\r\n" % (where, reply.encode(), len(payload), payload)
    total = len(headers) + len(payload)
    return b"HPUB %b %b %d %d\r\n%b%b\r\n" % (where, reply.encode(), len(headers), total, headers, payload)


def answer(reply: bytes, verdict: bytes) -> bytes:
    """Tell JetStream what became of a delivery. The reply subject is the server's own, so it is not checked."""
    return b"PUB %b %d\r\n%b\r\n" % (reply, len(verdict), verdict)


def give_back(delay_s: float) -> bytes:
    return b'-NAK {"delay": %d}' % int(delay_s * 1e9) if delay_s > 0 else b"-NAK"


def header_block(fields: Mapping[str, str]) -> bytes:
    lines = ["NATS/1.0"]
    for name, value in fields.items():
        if "\n" in value or "\r" in value:
            raise MalformedEnvelope(f"the header {name}", value)
        lines.append(f"{name}: {value}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def message_headers(message: Message, dedup_id: str) -> bytes:
    fields = {"Nats-Msg-Id": dedup_id}
    if execution := message.metadata.get("execution_id"):
        fields["AF-Execution"] = str(execution)
    if trace := traceparent(message.trace_id, message.span_id):
        fields["traceparent"] = trace
    return header_block(fields)


def traceparent(trace_id: str, span_id: str) -> str | None:
    """The W3C header, or None where the ids are not W3C's (a wrong header is worse than none)."""
    if _TRACE.fullmatch(trace_id) and _SPAN.fullmatch(span_id):
        return f"00-{trace_id}-{span_id}-01"
    return None


def pull_request(stream: str, consumer: str, *, batch: int, expires_s: float, heartbeat_s: float, reply: str) -> bytes:
    asked = b'{"batch":%d,"expires":%d,"idle_heartbeat":%d}' % (batch, int(expires_s * 1e9), int(heartbeat_s * 1e9))
    return publication(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}", asked, reply=reply)


def is_delivery(reply: bytes) -> bool:
    return reply.startswith(_ACK_PREFIX)


def pool_of(subject: bytes | str) -> str:
    """The last token: on subjects of workers, whose they are."""
    text = subject if isinstance(subject, str) else subject.decode()
    return text.rpartition(".")[2]


def position(reply: bytes) -> Position:
    """Newer servers may put the domain and the account before the stream's name."""
    tokens = reply.split(b".")
    at = 4 if len(tokens) == 9 else 6
    return Position(deliveries=int(tokens[at]), sequence=int(tokens[at + 1]), pending=int(tokens[at + 4]))


def status(headers: bytes) -> Status | None:
    """`NATS/1.0 409 Consumer Deleted`, with or without header lines after it; None for an ordinary message."""
    if not headers.startswith(b"NATS/1.0 "):
        return None
    first, *rest = headers[len(b"NATS/1.0 ") :].decode(errors="replace").split("\r\n")
    code, _, text = first.partition(" ")
    fields = dict(line.partition(":")[::2] for line in rest if line)
    unused = fields.get("Nats-Pending-Messages", "").strip()
    return Status(int(code) if code.isdigit() else 0, text.strip(), int(unused) if unused.isdigit() else None)


@lru_cache(maxsize=4096)
def _checked(subject: str) -> bytes:
    """A space or a line break in a subject would start another protocol command."""
    if not _SUBJECT.fullmatch(subject):
        raise MalformedEnvelope("a subject", subject)
    return subject.encode()
