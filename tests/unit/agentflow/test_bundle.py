"""Messages that travel together under one seal."""

import pytest

from agentflow.contracts.bundle import ResultsHanded, ResultsTaken, bundled, opened
from agentflow.contracts.message import TamperedMessage, decode, encode, sealed, unsealed
from agentflow.ids import AgentName, MessageId, TraceId


def message(payload):
    return unsealed(
        id=MessageId("msg_1"),
        trace_id=TraceId("t"),
        span_id="s",
        sender="worker",
        to="orchestrator",
        type="response",
        payload=payload,
        metadata={"execution_id": "exec_1"},
        at_ms=1,
    )


@pytest.mark.parametrize("payload", [{"n": 1}, {"share": 1.0, "ключ": [True, None]}, {}])
def test_a_bundle_gives_back_what_was_put_into_it(payload):
    handed = ResultsHanded([message(payload), message({"n": 2})], {AgentName("noop"): 3})

    assert opened(bundled(handed), ResultsHanded) == handed
    assert opened(bundled(ResultsTaken([1], [message(payload)])), ResultsTaken).steps[0].read(dict) == payload


@pytest.mark.parametrize(
    "change",
    [
        lambda raw: raw.replace(b'"n":1', b'"n":2'),
        lambda raw: raw[:-1],
        lambda raw: b"f" * 64 + raw[64:],
        lambda raw: raw[64:],
        lambda raw: b"",
    ],
)
def test_a_bundle_that_was_changed_is_refused(change):
    with pytest.raises(TamperedMessage):
        opened(change(bundled(ResultsHanded([message({"n": 1})]))), ResultsHanded)


def test_a_bundle_of_another_shape_is_refused():
    with pytest.raises(TamperedMessage):
        opened(bundled(ResultsTaken([])), ResultsHanded)


@pytest.mark.parametrize("payload", [{"n": 1}, {"share": 1.0, "ключ": 1e21}])
def test_a_message_that_leaves_a_bundle_can_be_sealed_by_itself(payload):
    (one,) = opened(bundled(ResultsHanded([message(payload)])), ResultsHanded).results

    assert decode(encode(sealed(one))).read(dict) == payload
