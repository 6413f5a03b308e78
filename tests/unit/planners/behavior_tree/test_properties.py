"""What holds for every tree on every day. `Play` itself refuses to go on when a program asks for a step that is
open, halts what is not, ends with something running, or neither ends nor waits."""

import random

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from planners.behavior_tree.program import walk
from planners.behavior_tree.statuses import status_changes, statuses
from tests.unit.planners.behavior_tree.play import Play
from tests.unit.planners.behavior_tree.random_trees import Day, Grower, lived, tree_program

SEEDS = st.integers(min_value=0, max_value=2**32)


def grown(seed: int, size: int):
    return tree_program(Grower(random.Random(seed)).node(size))


@settings(max_examples=150, deadline=None)
@given(SEEDS, SEEDS, st.integers(min_value=1, max_value=60))
def test_every_tree_ends_whatever_happens_and_in_whatever_order(tree, day, size):
    run = lived(grown(tree, size), day)

    standing = statuses(run.program.root, run.memory)
    assert "running" not in standing.values()
    assert standing["tree"] in ("succeeded", "failed")


@settings(max_examples=60, deadline=None)
@given(SEEDS, SEEDS, st.integers(min_value=1, max_value=60))
def test_going_on_in_another_process_after_every_tick_changes_nothing(tree, day, size):
    stayed, moved = [], []
    for watched, resume in ((stayed, False), (moved, True)):
        run = Play(grown(tree, size), Day(day).flags(0), resume=resume)
        run.watch = lambda it, watched=watched: watched.append((dict(it.memory), sorted(it.open), list(it.halted)))
        run.begin()
        while run.ending is None:
            Day(day).happen(run)
        watched.append(msgspec.to_builtins(run.ending))

    assert stayed == moved


@settings(max_examples=60, deadline=None)
@given(SEEDS, SEEDS, st.integers(min_value=1, max_value=60))
def test_what_a_tick_changed_can_be_told_from_its_event_alone(tree, day, size):
    program = grown(tree, size)
    run = Play(program, Day(day).flags(0))
    told: dict[str, str] = {node.path: "idle" for node in walk(program.root)}
    before: dict = {}

    def follow(it: Play) -> None:
        changed = {path: value for path, value in it.memory.items() if before.get(path) != value}
        told.update(status_changes(changed, [path for path in before if path not in it.memory]))
        assert told == statuses(program.root, it.memory)
        before.clear()
        before.update(it.memory)

    run.watch = follow
    run.begin()
    while run.ending is None:
        Day(day).happen(run)


def test_killed_at_any_tick_of_a_tree_of_200_nodes_a_thousand_times_the_rest_is_the_same():
    kills = 0
    for seed in range(5):
        grower = Grower(random.Random(seed))
        tree = {"sequence": {"children": [{"force_success": {"do": grower.node(42)}} for _ in range(5)]}}
        program, elsewhere = tree_program(tree), tree_program(tree)
        assert len(list(walk(program.root))) >= 200
        story, saved = _story(program, seed)
        for tick in random.Random(seed).choices(range(len(saved)), k=200):
            kills += 1
            assert _resumed(elsewhere, seed, saved[tick]) == story[tick + 1 :]

    assert kills == 1_000


KEPT = ("memory", "vars", "outputs", "now", "ticks", "input")


def _story(program, day: int) -> tuple[list[dict[str, str]], list[tuple[bytes, dict]]]:
    """The statuses after each tick, and all that was written down by then."""
    story, saved = [], []

    def write_down(it: Play) -> None:
        story.append(statuses(program.root, it.memory))
        if it.ending is None:
            saved.append((msgspec.json.encode({name: getattr(it, name) for name in KEPT}), dict(it.open)))

    run = Play(program, Day(day).flags(0))
    run.watch = write_down
    run.begin()
    while run.ending is None:
        Day(day).happen(run)
    assert len(saved) > 10
    return story, saved


def _resumed(program, day: int, saved: tuple[bytes, dict]) -> list[dict[str, str]]:
    """The statuses that follow, in a process that knows nothing but what was written down."""
    story: list[dict[str, str]] = []
    run = Play(program)
    for name, value in msgspec.json.decode(saved[0]).items():
        setattr(run, name, value)
    run.open = dict(saved[1])
    run.watch = lambda it: story.append(statuses(program.root, it.memory))
    while run.ending is None:
        Day(day).happen(run)
    return story
