from datetime import UTC, datetime

import pytest

from agentflow import limits
from agentflow.contracts.message import decode, encode, sealed
from agentflow.contracts.step import StepFault, StepRequest, StepResult
from worker.report import Ending, dedup_id, report


@pytest.fixture
def reported(asked, ids):
    def make(output=None, fault=None):
        question = asked()
        message = report(
            id=ids.message(),
            asked=question,
            request=question.read(StepRequest),
            ending=Ending(10, 25, output, fault),
            agent="classifier",
            worker="wrk_1",
        )
        return question, message, message.read(StepResult)

    return make


def test_a_result_answers_its_question_and_its_seal_holds(reported):
    question, message, result = reported(output={"label": "billing", "scores": [0.5, 1.0]})

    whole = sealed(message)
    assert decode(encode(whole)) == whole
    assert (message.type, message.sender, message.to) == ("response", "classifier", "orchestrator")
    assert message.trace_id == question.trace_id
    assert message.metadata == {
        "workflow": "support",
        "execution_id": "exec_1",
        "step": "classify",
        "attempt": 1,
        "worker": "wrk_1",
    }
    assert result == StepResult(
        "exec_1", "classify", 1, "wrk_1", 10, 25, output={"label": "billing", "scores": [0.5, 1.0]}
    )


def test_a_fault_travels_without_an_output(reported):
    _, _, result = reported(output={"half": "done"}, fault=StepFault("timeout", "late", retryable=True))

    assert result.fault == StepFault("timeout", "late", retryable=True)
    assert result.output is None


circle: list = []
circle.append(circle)


NOT_JSON = {
    "an object": object(),
    "a number as key": {1: "a"},
    "a date": {"at": datetime(2026, 1, 1, tzinfo=UTC)},
    "a set": {"s": {1, 2}},
    "bytes": b"raw",
    "beyond 2^53": 2**60,
    "beyond 64 bits": 2**80,
    "nan": float("nan"),
    "half a character": "\ud800",
    "a circle": circle,
}


@pytest.mark.parametrize("output", NOT_JSON.values(), ids=NOT_JSON)
def test_an_output_that_is_not_json_becomes_a_fault_that_says_so(reported, output):
    _, message, result = reported(output=output)

    assert result.fault is not None
    assert (result.fault.code, result.fault.retryable) == ("output_invalid", False)
    assert result.output is None
    whole = sealed(message)
    assert decode(encode(whole)) == whole


def test_an_output_above_the_limit_becomes_a_fault_and_one_at_the_limit_does_not(reported):
    longest = "x" * (limits.PAYLOAD_BYTES_MAX - 2)  # two for its quotes

    assert reported(output=longest)[2].fault is None
    fault = reported(output=longest + "x")[2].fault
    assert fault is not None
    assert fault.code == "output_too_large"


def test_the_same_attempt_always_has_the_same_dedup_id_and_the_next_one_another(asked):
    first = asked().read(StepRequest)
    second = asked(attempt=2).read(StepRequest)

    assert dedup_id(first) == "exec_1/classify#1/result"
    assert dedup_id(second) != dedup_id(first)
