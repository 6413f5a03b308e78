"""What goes over the bus in one message under one seal: results that a worker hands over, steps that come back.

The seal is over the bytes as they are, because a bundle is neither stored nor handed on: who opens it has the messages,
and seals one that must travel by itself (`contracts.message.sealed`).
"""

import hashlib
from typing import TypeVar

import msgspec

from agentflow.contracts.message import Message, TamperedMessage
from agentflow.ids import AgentName

_Bundle = TypeVar("_Bundle", bound=msgspec.Struct)

_HASH_CHARS = 64


class ResultsHanded(msgspec.Struct, frozen=True):
    """What a worker asks of the control plane that it works for: to commit these results.

    `room`: how many steps each of its agents would begin at once, if they came with the answer.
    """

    results: list[Message]
    room: dict[AgentName, int] = {}


class ResultsTaken(msgspec.Struct, frozen=True):
    """The places of the results that were not committed, and the steps that go straight back."""

    refused: list[int]
    steps: list[Message] = []


_encode = msgspec.json.Encoder().encode


def bundled(bundle: ResultsHanded | ResultsTaken) -> bytes:
    written = _encode(bundle)
    return hashlib.sha256(written).hexdigest().encode() + written


def opened(raw: bytes, shape: type[_Bundle]) -> _Bundle:
    """Raises `TamperedMessage` for anything but what `bundled` made."""
    seal, written = raw[:_HASH_CHARS], raw[_HASH_CHARS:]
    if hashlib.sha256(written).hexdigest().encode() != seal:
        raise TamperedMessage("the seal of a bundle does not match its content")
    try:
        return msgspec.json.decode(written, type=shape)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise TamperedMessage(f"it is not a {shape.__name__} ({error})") from None
