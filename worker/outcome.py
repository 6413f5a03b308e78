"""What an exception means for a step: its code, its words, and whether another attempt may help. Pure."""

from agentflow.contracts.step import StepFault
from agentflow.errors import AgentFlowError

_MESSAGE_CHARS_MAX = 2_000  # enough for a person; a fault travels in every event that mentions it


class StepFailed(Exception):
    """Raised by an agent that knows exactly which fault its step ends with."""

    def __init__(self, fault: StepFault) -> None:
        super().__init__(fault.message)
        self.fault = fault


def fault_of(error: BaseException) -> StepFault:
    """A function says "try again" by raising anything with `retryable = True`, a TimeoutError or a ConnectionError."""
    match error:
        case StepFailed():
            return _bounded(error.fault)
        case AgentFlowError():
            return _bounded(StepFault(error.code, error.message, retryable=error.retryable))
        case TimeoutError():
            return _bounded(StepFault("timeout", _words(error), retryable=True))
        case ConnectionError():
            return _bounded(StepFault("unavailable", _words(error), retryable=True))
        case _:
            retryable = getattr(error, "retryable", False) is True
            return _bounded(StepFault("agent_error", _words(error), retryable=retryable))


def _words(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - the exception is a user's own; it may fail even at saying what it is
        text = ""
    name = type(error).__name__
    return f"{name}: {text}" if text else name


def _bounded(fault: StepFault) -> StepFault:
    """Cut to a readable length, and made of characters that every reader of the event can encode."""
    message = fault.message[:_MESSAGE_CHARS_MAX].encode(errors="replace").decode()
    return StepFault(fault.code, message, fault.retryable)
