"""Typed identifiers: a prefix that says what it names, and a ULID that sorts by time.

Imports nothing of ours. `UlidSource` is stateful (monotonic within a process), so the composition root
makes one and passes it on; parsing and sharding are pure.
"""

import hashlib
import secrets
from collections.abc import Callable
from functools import lru_cache
from typing import NewType

TenantId = NewType("TenantId", str)
WorkflowId = NewType("WorkflowId", str)
ExecutionId = NewType("ExecutionId", str)
WorkerId = NewType("WorkerId", str)
MessageId = NewType("MessageId", str)
TraceId = NewType("TraceId", str)
AgentName = NewType("AgentName", str)
StepPath = NewType("StepPath", str)

DEFAULT_TENANT = TenantId("default")

# Crockford's base 32 leaves out I, L, O and U, which people misread.
_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_PAIRS = [high + low for high in _ALPHABET for low in _ALPHABET]
_SHIFTS = range(120, -1, -10)
_TIME_BITS = 48
_CHANCE_BITS = 80


class UlidSource:
    """Makes ULIDs that strictly increase within this process, also when the clock stands still or steps back."""

    def __init__(self, now_ms: Callable[[], int], chance: Callable[[int], int] = secrets.randbits) -> None:
        self._now_ms = now_ms
        self._chance = chance
        self._last = -1
        self._last_ms = -1

    def ulid(self) -> str:
        now_ms = self._now_ms()
        # Adding one keeps order inside a millisecond, as the specification has it; a carry into the time bits is still
        # a later id. Chance is asked for once a millisecond: it comes from the kernel.
        self._last = now_ms << _CHANCE_BITS | self._chance(_CHANCE_BITS) if now_ms > self._last_ms else self._last + 1
        self._last_ms = max(self._last_ms, now_ms)
        return encode_ulid(self._last)

    def execution(self) -> ExecutionId:
        return ExecutionId(f"exec_{self.ulid()}")

    def workflow(self) -> WorkflowId:
        return WorkflowId(f"wf_{self.ulid()}")

    def worker(self) -> WorkerId:
        return WorkerId(f"wrk_{self.ulid()}")

    def server(self) -> str:
        """Names one run of a control plane, as the holder of leases."""
        return f"srv_{self.ulid()}"

    def message(self) -> MessageId:
        return MessageId(self.ulid())

    def trace(self) -> TraceId:
        """A W3C trace id: 32 hex digits. A ULID has the same 128 bits, so traces sort by time too."""
        return TraceId(f"{decode_ulid(self.ulid()):032x}")


def derived_execution(at_ms: int, of: str) -> ExecutionId:
    """The id of an execution with a known cause: the same cause always gives the same id, and so one start."""
    chance = int.from_bytes(hashlib.sha256(of.encode()).digest()[: _CHANCE_BITS // 8])
    return ExecutionId(f"exec_{encode_ulid(at_ms << _CHANCE_BITS | chance)}")


def encode_ulid(value: int) -> str:
    if not 0 <= value < 1 << (_TIME_BITS + _CHANCE_BITS):
        raise ValueError("a ULID has 128 bits")
    return "".join([_PAIRS[value >> shift & 1023] for shift in _SHIFTS])


def decode_ulid(text: str) -> int:
    if len(text) != 26 or text[0] > "7":
        raise ValueError(f"not a ULID: {text!r}")
    value = 0
    for letter in text.upper():
        digit = _ALPHABET.find(letter)
        if digit < 0:
            raise ValueError(f"not a ULID: {text!r}")
        value = value << 5 | digit
    return value


@lru_cache(maxsize=4096)
def shard_of(execution: ExecutionId, shards: int) -> int:
    """The shard that owns an execution. A hash, so that ids made in one millisecond still spread."""
    return int.from_bytes(hashlib.blake2b(execution.encode(), digest_size=8).digest()) % shards
