"""Days in the life of a deployment, two thousand on every run: whatever breaks, the invariants hold in the evening.

Several control planes and workers, the product's own, on a simulated network, database and clock (see
`tests.simulation.model`). A day that fails says its seed and how to live it again.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from agentflow.settings import inherited_environment
from tests.simulation.model.day import lived, seen_on
from tests.simulation.planted import BUGS, planted

DAYS = 2_000
DAYS_PER_TEST = 50
RARE = {
    "kill", "stop", "leave", "cut_bus", "cut_database", "bus_away", "database_away", "wipe_bus", "jump_clock",
    "commit unanswered", "double dropped", "handed out again",
    "asked start: unknown", "asked start: refused", "asked cancel: accepted",
    "fault worker_lost", "fault timeout", "fault boom",
    "ChildEnded", "TimerFired", "CancelRequested", "ExecutionRetried",
}  # fmt: skip


def again(seed: int, ways: tuple[str, ...] = ()) -> str:
    only = f" WAYS={','.join(ways)}" if ways else ""
    return f"live it again: make soak SEED={seed}{only}"


@pytest.mark.parametrize("first", range(0, DAYS, DAYS_PER_TEST))
def test_whatever_breaks_on_a_day_the_invariants_hold_in_the_evening(first):
    ran = 0
    for seed in range(first, first + DAYS_PER_TEST):
        day, found = lived(seed)

        assert not found, "\n".join([f"seed {seed}: {again(seed)}", *map(str, found)])
        ran += len(day.effects)
    assert ran > DAYS_PER_TEST, "days on which nothing happens prove nothing"


def hashes(seeds: range) -> list[str]:
    return [lived(seed)[0].trace_hash for seed in seeds]


def test_the_same_seed_is_the_same_day_down_to_its_trace():
    seeds = range(10)
    code = "from tests.simulation.test_days import hashes\nprint(hashes(range(10)))"
    elsewhere = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parents[2],
        env=inherited_environment() | {"PYTHONHASHSEED": "7"},
        check=True,
        capture_output=True,
        text=True,
    )

    first = hashes(seeds)

    assert hashes(seeds) == first
    assert str(first) == elsewhere.stdout.strip(), "nor does it depend on the process"
    assert len(set(first)) == len(first)


def test_everything_rare_happens_on_some_day():
    seen: set[str] = set()
    for seed in range(DAYS):
        seen.update(seen_on(lived(seed)[0]))
        if seen >= RARE:
            return
    assert RARE - seen == set()


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_found(bug):
    with planted(bug):
        found = any(lived(seed, ways=bug.ways)[1] for seed in range(bug.first, bug.first + bug.seeds))

    assert found, f"{bug.seeds} days went by and nobody noticed that {bug.name}"
