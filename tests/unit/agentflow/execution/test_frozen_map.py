"""A mapping that never changes, held to the behaviour of a plain dict in key order."""

import subprocess
import sys

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from agentflow.execution.frozen_map import FrozenMap, Reading

KEYS = st.text("ab01/", min_size=1, max_size=5)
CHANGES = st.lists(st.tuples(st.booleans(), KEYS, st.integers()), max_size=300)


def made(changes) -> tuple[FrozenMap[int], dict[str, int]]:
    frozen: FrozenMap[int] = FrozenMap()
    plain: dict[str, int] = {}
    for put, key, value in changes:
        before, listed = frozen, list(frozen.items())
        if put:
            frozen, plain[key] = frozen.put(key, value), value
        else:
            frozen = frozen.without(key)
            plain.pop(key, None)
        assert list(before.items()) == listed, "the old one is as it was"
    return frozen, plain


@given(CHANGES)
def test_it_holds_what_a_dict_would_hold_in_the_order_of_its_keys(changes):
    frozen, plain = made(changes)

    assert list(frozen.items()) == sorted(plain.items())
    assert len(frozen) == len(plain)
    assert bool(frozen) == bool(plain)
    assert frozen.first() == min(plain, default=None)
    assert all(frozen[key] == frozen.get(key) == plain[key] for key in plain)
    assert "no such key" not in frozen
    assert frozen.get("no such key") is None
    assert dict(Reading(frozen)) == plain


@given(CHANGES, st.lists(KEYS, max_size=80))
def test_many_keys_can_go_at_once(changes, gone):
    frozen, plain = made(changes)

    left = frozen.without_all(gone)

    assert list(left.items()) == [(key, value) for key, value in sorted(plain.items()) if key not in gone]
    assert all(left.parts)


@given(CHANGES, st.dictionaries(KEYS, st.integers(), max_size=80))
def test_many_can_be_put_at_once(changes, more):
    frozen, plain = made(changes)

    assert list(frozen.put_all(more).items()) == sorted({**plain, **more}.items())
    assert list(frozen.items()) == sorted(plain.items()), "the old one is as it was"


@given(CHANGES)
def test_what_was_done_on_the_way_does_not_matter(changes):
    frozen, plain = made(changes)
    straight: FrozenMap[int] = FrozenMap()
    for key in sorted(plain, reverse=True):
        straight = straight.put(key, plain[key])

    assert frozen == straight
    assert frozen != straight.put("another", 1)


@given(CHANGES)
def test_it_comes_back_from_json_as_it_was(changes):
    frozen, _ = made(changes)

    assert msgspec.json.decode(msgspec.json.encode(frozen), type=FrozenMap[int]) == frozen


def test_a_change_to_a_large_one_shares_nearly_everything():
    frozen: FrozenMap[int] = FrozenMap()
    for number in range(10_000):
        frozen = frozen.put(f"{number * 7919 % 10_000:05d}", number)

    changed = frozen.put("05000", -1)

    shared = sum(any(old is new for old in frozen.parts) for new in changed.parts)
    assert shared == len(changed.parts) - 1
    assert max(map(len, frozen.parts)) <= 96


def test_the_order_does_not_depend_on_the_hash_seed():
    script = (
        "from agentflow.execution.frozen_map import FrozenMap\nm = FrozenMap()\n"
        "for n in range(500): m = m.put(str(n * 31 % 500), n)\nprint(list(m.items()), m.parts)"
    )

    said = {
        subprocess.run(
            [sys.executable, "-c", script], env={"PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("0", "1", "2")
    }

    assert len(said) == 1
