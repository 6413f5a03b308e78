import pytest

from agentflow.contracts.step import StepFault
from agentflow.ports import BusUnavailable
from worker.outcome import StepFailed, fault_of


class Busy(Exception):
    retryable = True


class Odd(Exception):
    retryable = "yes"


class Speechless(Exception):
    def __str__(self):
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        (ValueError("no such ticket"), StepFault("agent_error", "ValueError: no such ticket")),
        (KeyError(), StepFault("agent_error", "KeyError")),
        (Busy("later"), StepFault("agent_error", "Busy: later", retryable=True)),
        (Odd("maybe"), StepFault("agent_error", "Odd: maybe")),
        (TimeoutError("slow"), StepFault("timeout", "TimeoutError: slow", retryable=True)),
        (ConnectionResetError("gone"), StepFault("unavailable", "ConnectionResetError: gone", retryable=True)),
        (SystemExit(3), StepFault("agent_error", "SystemExit: 3")),
        (Speechless(), StepFault("agent_error", "Speechless")),
        (StepFailed(StepFault("http_rejected", "HTTP 404")), StepFault("http_rejected", "HTTP 404")),
    ],
)
def test_an_exception_says_its_code_its_words_and_whether_to_try_again(error, fault):
    assert fault_of(error) == fault


def test_our_own_errors_keep_their_code_and_leave_out_the_hint():
    error = BusUnavailable("away")

    assert fault_of(error) == StepFault("AF2001", error.message, retryable=True)


def test_a_message_is_cut_and_made_encodable():
    fault = fault_of(ValueError("\ud800" + "x" * 10_000))

    assert len(fault.message) == 2_000
    fault.message.encode()
