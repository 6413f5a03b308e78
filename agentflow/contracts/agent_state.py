"""What workers and control plane say to each other about agents' states: claimed, saved, let go, and never by two.

Asked on `subjects.AGENT_STATES`, answered from the database. Every claim and every save is the next version of its
state and must follow directly after the one its writer knows: the version is the fence.
"""

import msgspec

from agentflow.ids import AgentName, TenantId, WorkerId


class StateRef(msgspec.Struct, frozen=True, array_like=True):
    """One state of one agent: an agent may have many, each with a name of its own."""

    tenant: TenantId
    agent: AgentName
    instance: str


class ClaimState(msgspec.Struct, frozen=True, tag="claim"):
    """Let this worker have the state, with what was last saved of it."""

    ref: StateRef
    worker: WorkerId


class SaveState(msgspec.Struct, frozen=True, tag="save"):
    """`data` follows `version`, which this worker claimed or saved. With `release` nobody has it afterwards."""

    ref: StateRef
    worker: WorkerId
    version: int
    data: bytes
    checkpoint_type: str  # step, periodic, manual, hibernate, migrate
    release: bool = False


class StateClaimed(msgspec.Struct, frozen=True, tag="claimed"):
    version: int
    data: bytes  # empty: nothing was ever saved


class StateHeld(msgspec.Struct, frozen=True, tag="held"):
    """Another worker has it and has been asked to let it go; ask again in a moment."""

    by: str


class StateSaved(msgspec.Struct, frozen=True, tag="saved"):
    version: int


class StateFenced(msgspec.Struct, frozen=True, tag="fenced"):
    """Somebody else has the state now: forget it, nothing was written."""

    version: int


class StateRefused(msgspec.Struct, frozen=True, tag="refused"):
    """The question could not be answered: `retryable` says whether asking again may help."""

    code: str
    message: str
    retryable: bool


StateQuestion = ClaimState | SaveState
StateAnswer = StateClaimed | StateHeld | StateSaved | StateFenced | StateRefused

_encode = msgspec.msgpack.Encoder().encode
_question: msgspec.msgpack.Decoder[StateQuestion] = msgspec.msgpack.Decoder(StateQuestion)
_answer: msgspec.msgpack.Decoder[StateAnswer] = msgspec.msgpack.Decoder(StateAnswer)


def encode(said: StateQuestion | StateAnswer) -> bytes:
    return _encode(said)


def decode_question(raw: bytes) -> StateQuestion:
    return _question.decode(raw)


def decode_answer(raw: bytes) -> StateAnswer:
    return _answer.decode(raw)
