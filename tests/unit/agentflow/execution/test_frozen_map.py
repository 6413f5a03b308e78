"""A mapping that never changes, held to the behaviour of a plain dict in key order."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentflow.contracts.artifact import ArtifactRef
from agentflow.contracts.claims import Claim, claims_in
from agentflow.execution.frozen_map import FrozenMap, Reading
from agentflow.execution.state import ExecutionState, decode_state, encode_state

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
    assert list(frozen) == list(frozen.keys()) == sorted(plain)
    assert list(frozen.values()) == [plain[key] for key in sorted(plain)]
    assert len(frozen) == len(plain)
    assert bool(frozen) == bool(plain)
    assert all(frozen[key] == frozen.get(key) == plain[key] for key in plain)
    assert "no such key" not in frozen
    assert frozen.get("no such key") is None
    assert dict(Reading(frozen)) == plain
    assert list(Reading(frozen)) == sorted(plain)


def test_a_key_that_is_not_there_is_an_error_to_those_who_need_it():
    with pytest.raises(KeyError):
        FrozenMap()["a"]
    with pytest.raises(KeyError):
        Reading(FrozenMap())["a"]


@given(CHANGES, st.lists(KEYS, max_size=80))
def test_many_keys_can_go_at_once(changes, gone):
    frozen, plain = made(changes)

    left = frozen.without_all(gone)

    assert list(left.items()) == [(key, value) for key, value in sorted(plain.items()) if key not in gone]
    assert list(frozen.items()) == sorted(plain.items()), "the old one is as it was"


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
    assert encode_state(ExecutionState(visits=frozen)) == encode_state(ExecutionState(visits=straight))


@given(CHANGES)
def test_it_comes_back_from_json_as_it_was(changes):
    frozen, _ = made(changes)

    assert decode_state(encode_state(ExecutionState(visits=frozen))).visits == frozen


def test_a_large_value_that_is_only_claimed_is_found_inside_and_comes_back():
    claim = Claim(ArtifactRef("a" * 64, 7))
    state = ExecutionState(outputs=FrozenMap().put("b", [claim]).put("a", 1))

    assert list(claims_in(state)) == [claim]
    assert decode_state(encode_state(state)) == state


def test_neither_the_order_nor_what_is_stored_depends_on_the_hash_seed():
    script = (
        "from agentflow.execution.frozen_map import FrozenMap, Reading\n"
        "from agentflow.execution.state import ExecutionState, encode_state\nm = FrozenMap()\n"
        "for n in range(500): m = m.put(str(n * 31 % 500), n)\n"
        "print(list(m), list(m.items()), list(m.values()), list(Reading(m)), encode_state(ExecutionState(visits=m)))"
    )

    said = {
        subprocess.run(
            [sys.executable, "-c", script], env={"PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("0", "1", "2")
    }

    assert len(said) == 1
