"""The rate limit, with the clock in our hands."""

from hypothesis import given, settings
from hypothesis import strategies as st

from worker.policies.rate import Rate, RateRules


def test_a_burst_passes_at_once_and_the_rest_is_spaced_out():
    rate = Rate(RateRules(calls=10, per_s=1.0, burst=3))

    waits = [rate.take(0.0, patience_s=10) for _ in range(5)]

    assert [round(wait, 6) for wait in waits] == [0.0, 0.0, 0.0, 0.1, 0.2]


def test_a_caller_without_the_patience_takes_nothing_from_the_others():
    rate = Rate(RateRules(calls=1, per_s=1.0))
    assert rate.take(0.0, patience_s=0) == 0.0

    assert rate.take(0.0, patience_s=0.5) is None
    assert rate.take(0.0, patience_s=1.0) == 1.0


@settings(deadline=None)
@given(
    st.integers(1, 20),
    st.integers(1, 20),
    st.lists(st.floats(0, 0.5, allow_nan=False), min_size=1, max_size=80),
)
def test_no_span_ever_sees_more_calls_than_its_allowance_and_the_burst(calls, burst, pauses):
    rate, now_s, begun = Rate(RateRules(calls=calls, per_s=1.0, burst=burst)), 0.0, []
    for pause_s in pauses:
        now_s += pause_s
        begun.append(now_s + rate.take(now_s, patience_s=float("inf")))

    for first in range(len(begun)):
        for last in range(first, len(begun)):
            assert last - first + 1 <= (begun[last] - begun[first]) * calls + burst + 1e-6
