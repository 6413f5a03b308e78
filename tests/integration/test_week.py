"""bench/subjects/week.py at a size for every day: on its last day the platform is what it was on the second."""

from rich.console import Console

from bench.subjects.week import measured


async def test_after_days_of_work_and_purges_memory_has_not_grown_and_nothing_is_left() -> None:
    week = await measured(Console(quiet=True), 30, days=3)

    grown = week["the week"]
    assert grown["executions left"] == 0
    assert grown["control plane MB, last day / second"] < 1.15
    assert grown["worker MB, last day / second"] < 1.15
