"""What several planners read the same way: the rule by which a step is tried again, and a moment to wait for."""

from datetime import UTC, datetime
from typing import Any

from agentflow.contracts.step import StepFault
from agentflow.execution.events import Retry
from agentflow.workflow.model import RetryRule

_RETRY_DEFAULT = Retry()


def retry_of(rule: RetryRule | None) -> Retry:
    if rule is None:
        return _RETRY_DEFAULT
    return Retry(
        max_attempts=rule.max_attempts,
        initial_ms=rule.initial,
        multiplier=rule.multiplier,
        max_ms=max(_RETRY_DEFAULT.max_ms, rule.initial) if rule.max is None else rule.max,
        jitter=rule.jitter == "full",
    )


def moment_of(written: Any) -> int | StepFault:
    """Milliseconds since 1970 of RFC 3339 text, or of a number that already is that."""
    if isinstance(written, StepFault):
        return written
    if isinstance(written, int | float) and not isinstance(written, bool):
        return int(written)
    try:
        moment = datetime.fromisoformat(str(written))
        return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
    except (ValueError, OverflowError):
        return StepFault("not_a_moment", f"`{str(written)[:100]}` is not a moment: write 2030-01-31T08:00:00Z.")
