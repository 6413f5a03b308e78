"""How long something took, in words a person reads at a glance. Pure."""

from agentflow.clock import parse_rfc3339


def duration(ms: int) -> str:
    """`45 ms`, `1.20 s`, `2 min 5 s`: as exact as a person can use."""
    if ms < 1000:
        return f"{ms} ms"
    if ms < 60_000:
        return f"{ms / 1000:.2f} s"
    return f"{ms // 60_000} min {ms % 60_000 // 1000} s"


def took(started_at: str, ended_at: str | None) -> str:
    """Between two moments as the API tells them; nothing for what has not ended."""
    return duration(parse_rfc3339(ended_at) - parse_rfc3339(started_at)) if ended_at else ""
