"""Periods begin and end at midnight UTC, and at the first of a month."""

import pytest

from agentflow.clock import parse_rfc3339, rfc3339
from control_plane.costs.report import PERIODS, Period, span_of

NOW = parse_rfc3339("2026-03-01T13:05:07Z")


@pytest.mark.parametrize(
    ("period", "begins", "ends"),
    [
        ("today", "2026-03-01", None),
        ("yesterday", "2026-02-28", "2026-03-01"),
        ("last_7_days", "2026-02-23", None),
        ("last_30_days", "2026-01-31", None),
        ("this_month", "2026-03-01", None),
        ("last_month", "2026-02-01", "2026-03-01"),
        ("all", None, None),
    ],
)
def test_a_period_is_a_span_of_whole_days(period: Period, begins: str | None, ends: str | None) -> None:
    span = span_of(period, NOW)

    assert (None if span.from_ms is None else rfc3339(span.from_ms)[:10]) == begins
    assert (None if span.until_ms is None else rfc3339(span.until_ms)[:10]) == ends


def test_every_period_has_a_span() -> None:
    assert all(span_of(period, NOW) is not None for period in PERIODS)
