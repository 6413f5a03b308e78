"""When schedules fire: cron in a time zone, also where clocks change; intervals; jitter; bounds."""

from datetime import UTC, datetime
from itertools import islice, pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control_plane.schedules.times import Spec, lateness_ms, moments, next_moment, problems

BERLIN = ZoneInfo("Europe/Berlin")


def at(text: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


def some(spec: Spec, after: str, count: int) -> list[str]:
    zone = ZoneInfo(spec.timezone)
    return [
        f"{datetime.fromtimestamp(ms / 1000, tz=zone):%m-%d %H:%M}"
        for ms in islice(moments(spec, after_ms=at(after)), count)
    ]


def test_a_cron_expression_is_read_in_its_zone():
    spec = Spec(cron="0 8 * * 1-5", timezone="Europe/Berlin")

    assert some(spec, "2026-11-20T00:00", 3) == ["11-20 08:00", "11-23 08:00", "11-24 08:00"]
    assert next_moment(spec, after_ms=at("2026-07-01T00:00")) == at("2026-07-01T06:00")  # summer: two hours ahead


def test_an_hour_that_is_skipped_fires_right_after_the_change_and_one_that_comes_twice_fires_once():
    spec = Spec(cron="30 2 * * *", timezone="Europe/Berlin")

    assert some(spec, "2026-03-27T12:00", 3) == ["03-28 02:30", "03-29 03:00", "03-30 02:30"]
    assert some(spec, "2026-10-24T12:00", 2) == ["10-25 02:30", "10-26 02:30"]


def test_every_quarter_of_an_hour_goes_on_through_a_change():
    spec = Spec(cron="*/15 * * * *", timezone="Europe/Berlin")
    found = list(islice(moments(spec, after_ms=at("2026-10-25T00:00") - 1), 12))

    assert [later - earlier for earlier, later in pairwise(found)] == [15 * 60_000] * 11


def test_an_interval_fires_at_whole_multiples_and_so_much_later():
    spec = Spec(every_ms=900_000, offset_ms=60_000)

    assert some(spec, "2026-01-01T00:00", 3) == ["01-01 00:01", "01-01 00:16", "01-01 00:31"]


def test_nothing_fires_outside_of_its_bounds():
    spec = Spec(every_ms=60_000, starts_at_ms=at("2026-01-01T10:00"), ends_at_ms=at("2026-01-01T10:02"))

    assert some(spec, "2026-01-01T00:00", 9) == ["01-01 10:00", "01-01 10:01"]
    assert next_moment(spec, after_ms=at("2026-01-01T10:01")) is None


@given(
    spec=st.one_of(
        st.sampled_from(["* * * * *", "*/7 3-5 * * *", "0 0 L * *", "15 6 1,15 * 2#1", "59 23 31 12 *"]).map(
            lambda cron: Spec(cron=cron, timezone="America/New_York")
        ),
        st.builds(Spec, every_ms=st.integers(1_000, 10**9), offset_ms=st.integers(0, 10**9)),
    ),
    after_ms=st.integers(0, 2_000_000_000_000),
)
def test_moments_only_go_forward_and_follow_from_the_one_before(spec, after_ms):
    found = list(islice(moments(spec, after_ms=after_ms), 4))

    assert all(earlier < later for earlier, later in zip([after_ms, *found], found, strict=False))
    assert [next_moment(spec, after_ms=earlier) for earlier in found[:-1]] == found[1:]


@given(schedule=st.text(max_size=20), at_ms=st.integers(0, 10**13), jitter_ms=st.integers(0, 10**6))
def test_jitter_is_within_its_bound_and_the_same_for_everybody(schedule, at_ms, jitter_ms):
    spec = Spec(every_ms=60_000, jitter_ms=jitter_ms)

    late = lateness_ms(spec, schedule, at_ms)

    assert 0 <= late < max(1, jitter_ms)
    assert lateness_ms(spec, schedule, at_ms) == late


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (Spec(), "exactly one"),
        (Spec(cron="* * * * *", every_ms=1), "exactly one"),
        (Spec(cron="61 * * * *"), "no cron expression"),
        (Spec(cron="every day"), "no cron expression"),
        (Spec(cron="0 0 30 2 *"), "cron"),
        (Spec(cron="* * * * *", timezone="Europe/Atlantis"), "no time zone"),
        (Spec(cron="* * * * *", timezone="../etc/passwd"), "no time zone"),
        (Spec(cron="* * * * *", timezone=""), "no time zone"),
        (Spec(every_ms=60_000, starts_at_ms=10, ends_at_ms=5), "ends before"),
    ],
)
def test_what_cannot_be_kept_is_told(spec, said):
    (problem,) = problems(spec)

    assert said in problem.message
