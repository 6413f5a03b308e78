"""What a saved state holds: the agent's own data and its newest answers, compressed. Pure.

The answers make a repeated step harmless: its effect key finds what was answered when the state already had the
step in it, so nothing is applied twice.
"""

from typing import Any

import msgspec
import zstandard

from agentflow import limits
from agentflow.errors import Invalid

_EXPANDED_BYTES_MAX = 64 * 1024 * 1024  # what is stored may be damaged; it must not fill the memory


class StateNotJson(Invalid):
    code = "AF1312"

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"The agent's state cannot be saved: {reason}.",
            hint="Keep only what JSON can say in `context.state`: texts, numbers, lists and objects.",
        )


class StateUnreadable(Invalid):
    code = "AF1313"

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"A saved agent state cannot be read: {reason}.",
            hint="Restore an older version of it, or delete it and let the agent begin anew.",
        )


class Memory(msgspec.Struct):
    state: dict[str, Any] = msgspec.field(default_factory=dict)
    answers: dict[str, Any] = msgspec.field(default_factory=dict)  # by effect key, oldest first
    v: int = 1

    def answered(self, effect_key: str, output: Any) -> None:
        self.answers[effect_key] = output
        while len(self.answers) > limits.AGENT_STATE_ANSWERS_MAX:
            del self.answers[next(iter(self.answers))]


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Memory).decode


def pack(memory: Memory) -> bytes:
    try:
        raw = _encode(memory)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise StateNotJson(str(error)) from None
    return zstandard.ZstdCompressor(level=3).compress(raw)


def unpack(data: bytes) -> Memory:
    if not data:
        return Memory()
    try:
        raw = zstandard.ZstdDecompressor().decompress(data, max_output_size=_EXPANDED_BYTES_MAX)
        return _decode(raw)
    except (zstandard.ZstdError, msgspec.DecodeError) as error:
        raise StateUnreadable(str(error)) from None
