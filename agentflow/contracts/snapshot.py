"""A snapshot's bytes: JSON Lines, one thing a line, so that nobody has to hold all of it to write, read or check it.

    {"snapshot": …}              of what: execution, version, trace
    {"event": …, "version": n}   every event up to that version, byte for byte as it was stored
    {"workflow": …}              each definition it was pinned to, in that order: source, digest, tools, agents
    {"cost": …}                  what each attempt that ended used
    {"state": …}                 where it stood after the last of the events
    {"end": …}                   how many events there are, and which large values lie beside it

The same execution at the same version gives the same bytes, so their SHA-256 is what it is known by. A large value is
a claim in here, as in the events, and lies beside it by its own hash. Pure.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Any, Literal, get_args

import msgspec

from agentflow.contracts.artifact import ArtifactRef
from agentflow.contracts.usage import Usage
from agentflow.errors import Rejected

FORMAT = "agentflow/snapshot/v1"
Kind = Literal["snapshot", "event", "workflow", "cost", "state", "end"]
_ORDER: tuple[Kind, ...] = get_args(Kind)

_encode = msgspec.json.Encoder(order="sorted").encode


class SnapshotAltered(Rejected):
    code = "AF2323"

    def __init__(self, snapshot: str, reason: str) -> None:
        super().__init__(
            f"{snapshot} does not hold the record that was taken: {reason}.",
            hint="Read it again, or take another copy. If the control plane gives it out like this, restore the "
            "artifact store from a backup.",
        )


class Head(msgspec.Struct, frozen=True, kw_only=True):
    format: str
    tenant: str
    execution: str
    version: int
    trace: str


class Pinned(msgspec.Struct, frozen=True, kw_only=True):
    """A definition as its author wrote it. `tools`: registered ones by the digest they had for this execution."""

    id: str
    name: str
    version: str
    digest: str
    tools: dict[str, str]
    agents: list[str]
    source: str


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    attempt: int
    usage: Usage


class End(msgspec.Struct, frozen=True, kw_only=True):
    """`values` lie beside the snapshot. `lost` were in the artifact store no more when it was taken."""

    events: int
    values: list[ArtifactRef]
    lost: list[ArtifactRef]


class Line(msgspec.Struct, frozen=True):
    """One line, of whatever kind: that member is there and the others are not."""

    snapshot: Head | None = None
    event: msgspec.Raw = msgspec.Raw(b"")
    version: int = 0
    workflow: Pinned | None = None
    cost: Spent | None = None
    state: msgspec.Raw = msgspec.Raw(b"")
    end: End | None = None

    @property
    def kind(self) -> Kind:
        return next(kind for kind in _ORDER if getattr(self, kind))


def line(kind: Kind, value: Any) -> bytes:
    return written(kind, _encode(value))


def written(kind: Kind, value: bytes) -> bytes:
    """A line of something that is JSON already."""
    return b'{"%s":%s}\n' % (kind.encode(), value)


def event_line(version: int, event: bytes) -> bytes:
    return b'{"event":%s,"version":%d}\n' % (event, version)


_decoder = msgspec.json.Decoder(Line)


def read_line(raw: bytes) -> Line:
    """Raises `msgspec.DecodeError` for what is no line of a snapshot."""
    found = _decoder.decode(raw)
    if not any(getattr(found, kind) for kind in _ORDER):
        raise msgspec.ValidationError("none of the kinds that are known")
    return found


def faults(lines: Iterable[bytes]) -> list[str]:
    """What is wrong with a snapshot, looking at nothing but itself: whether it is complete and in order."""
    found: list[str] = []
    head, end, at = None, None, 0
    seen: Counter[Kind] = Counter()
    for number, raw in enumerate(lines, 1):
        try:
            one = read_line(raw)
        except msgspec.DecodeError as error:
            return [*found, f"line {number} cannot be read: {error}"]
        if end is not None or _ORDER.index(one.kind) < at or (number == 1) != (one.kind == "snapshot"):
            found.append(f"line {number} is not in its place")
        at = _ORDER.index(one.kind)
        head, end = one.snapshot or head, one.end or end
        seen[one.kind] += 1
        if one.kind == "event" and one.version != seen["event"]:
            found.append(f"line {number} is event {one.version} where {seen['event']} is due")
    if head is None or end is None or seen["state"] != 1 or not seen["workflow"]:
        return [*found, "its beginning, its end or something between is missing"]
    if head.format != FORMAT:
        found.append(f"its format is {head.format!r}, not {FORMAT!r}")
    if not seen["event"] == head.version == end.events:
        found.append(f"it is of version {head.version} and has {seen['event']} events")
    return found
