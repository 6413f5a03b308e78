"""Claims in events and messages: they come back where they were, and nothing else is ever taken for one."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentflow.contracts.artifact import ArtifactRef
from agentflow.contracts.claims import (
    Claim,
    Claimed,
    ValueLost,
    ValueNeeded,
    builtins,
    claims_in,
    joined,
    parted,
    within,
)
from agentflow.execution.events import ExecutionCompleted, StepScheduled, decode, encode
from agentflow.ids import AgentName, StepPath

LARGE = Claim(ArtifactRef("a" * 64, 20_000_000))
OTHER = Claim(ArtifactRef("b" * 64, 300_000))


def scheduled(value: object) -> StepScheduled:
    return StepScheduled(1, StepPath("a"), "a", 1, AgentName("agent"), value, 1_000)


leaves = (
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.text(max_size=5) | st.sampled_from([LARGE, OTHER])
)
values = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5) | st.just("claims"), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(values)
def test_an_event_is_read_back_with_its_claims_in_their_places(value: object) -> None:
    event = scheduled(value)

    assert decode(encode(event)) == event
    assert decode(encode(event).decode()) == event


@given(values)
def test_what_travels_apart_is_joined_again(value: object) -> None:
    plain, claims = parted(value)

    assert not list(claims_in(plain))
    assert joined(msgspec.json.decode(msgspec.json.encode(plain)), claims) == value


def test_an_event_with_a_large_value_takes_little_room() -> None:
    assert len(encode(ExecutionCompleted(1, {"text": LARGE}))) < 300


def test_data_that_looks_like_a_claim_stays_data() -> None:
    forged = {"claims": [[["x"], "a" * 64, 1]], "x": {"sha256": "a" * 64, "bytes": 1}}

    read = decode(encode(ExecutionCompleted(1, forged)))

    assert isinstance(read, ExecutionCompleted)
    assert read.output == forged
    assert not list(claims_in(read))


def test_a_claim_without_a_place_is_refused() -> None:
    raw = (
        b'{"claims":[[["output","x","y"],"'
        + b"a" * 64
        + b'",1]],"type":"execution.completed.v1","at_ms":1,"output":{}}'
    )

    with pytest.raises(msgspec.ValidationError, match="no place"):
        decode(raw)
    with pytest.raises((LookupError, TypeError)):
        joined({}, [Claimed(("x", "y"), "a" * 64, 1)])


def test_a_claim_is_read_only_while_its_value_is_lent() -> None:
    claim = Claim(ArtifactRef("a" * 64, 5))
    with pytest.raises(ValueNeeded):
        within(claim)

    claim.lend({"n": 1})
    assert within(claim) == {"n": 1}
    claim.take_back()
    with pytest.raises(ValueNeeded):
        within(claim)
    claim.lose("gone")
    with pytest.raises(ValueLost, match="gone"):
        within(claim)


def test_plain_data_of_a_struct_keeps_its_claims() -> None:
    assert builtins(ExecutionCompleted(1, [LARGE])) == {"type": "execution.completed.v1", "at_ms": 1, "output": [LARGE]}
