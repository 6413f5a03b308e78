"""When the state of an execution is stored beside its events, and in what form. Pure.

A snapshot saves folding a long history again and nothing else: it may be missing, old, or of a form that this build
does not know, and then the events are folded as if it were not there. The form is named by a number and by the shape of
the state itself, so a release that changes the state never reads what an older one meant by it.
"""

import hashlib
from typing import get_args, get_origin

import msgspec
import zstandard
from msgspec.structs import fields

from agentflow.execution.frozen_map import FrozenMap
from agentflow.execution.state import ExecutionState, decode_state, encode_state
from agentflow.limits import STATE_SNAPSHOT_BYTES
from agentflow.ports import NewEvents

# Raise it when `evolve` comes to another state from the same events without a change in the shape of the state.
_NUMBER = 1


def _shape() -> str:
    """A schema does not say what is inside of a frozen map, so the kinds of what they hold stand beside it."""
    held = [get_args(field.type)[0] for field in fields(ExecutionState) if get_origin(field.type) is FrozenMap]
    shapes = msgspec.json.schema_components([ExecutionState, *held], schema_hook=lambda _kind: {"type": "object"})
    return hashlib.sha256(msgspec.json.encode(shapes, order="deterministic")).hexdigest()[:16]


FORMAT = f"{_NUMBER}-{_shape()}"


def packed(state: ExecutionState) -> bytes:
    return zstandard.ZstdCompressor(level=1).compress(encode_state(state))


def unpacked(data: bytes) -> ExecutionState:
    return decode_state(zstandard.ZstdDecompressor().decompress(data))


def due(new: NewEvents, every: int) -> bytes | None:
    """The packed state if these events pass a multiple of `every`; a large state is stored in proportion less often.

    So what snapshots write for each event has a bound, however large the state has grown.
    """
    reached = new.after_version + len(new.events)
    marks = range(new.after_version // every + 1, reached // every + 1)
    if not marks or new.state.version != reached:
        return None
    data = packed(new.state)
    stride = 1 + len(data) // STATE_SNAPSHOT_BYTES
    return data if any(mark % stride == 0 for mark in marks) else None
