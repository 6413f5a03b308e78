"""Moments in their order, held to the behaviour of a plain dict that is sorted each time."""

from hypothesis import given
from hypothesis import strategies as st

from agentflow.execution.agenda import Agenda
from agentflow.execution.state import ExecutionState, decode_state, encode_state

# Few of one kind, so that what was put is also taken away; many of the other.
KEYS = st.text("ab", min_size=1, max_size=2) | st.text("ab01/", min_size=1, max_size=5)
CHANGES = st.lists(st.tuples(st.booleans(), KEYS, st.text("xy", max_size=2)), max_size=300)


def made(changes) -> tuple[Agenda, dict[str, str]]:
    agenda, plain = Agenda(), {}
    for put, key, of in changes:
        before, listed = agenda, list(agenda.items())
        if put:
            agenda, plain[key] = agenda.put(key, of), of
        else:
            agenda = agenda.without(key)
            plain.pop(key, None)
        assert list(before.items()) == listed, "the old one is as it was"
    return agenda, plain


@given(CHANGES)
def test_moments_are_in_order_and_the_soonest_is_first(changes):
    agenda, plain = made(changes)

    assert list(agenda.items()) == sorted(plain.items())
    assert agenda.first() == min(plain, default=None)
    assert bool(agenda) == bool(plain)
    assert all(key in agenda for key in plain)
    assert "no such key" not in agenda


def test_when_the_soonest_is_over_the_next_one_is_the_first():
    agenda = Agenda()
    for key in ("1", "3", "2", "4"):
        agenda = agenda.put(key, "")

    heard = []
    while (key := agenda.first()) is not None:
        heard.append(key)
        agenda = agenda.without(key)

    assert heard == ["1", "2", "3", "4"]


@given(CHANGES)
def test_what_was_done_on_the_way_does_not_matter(changes):
    agenda, plain = made(changes)
    straight = Agenda()
    for key in sorted(plain, reverse=True):
        straight = straight.put(key, plain[key])

    assert agenda == straight
    assert agenda != straight.put("another", "")
    assert decode_state(encode_state(ExecutionState(due=agenda))).due == agenda


def test_a_change_to_a_large_one_shares_nearly_everything():
    agenda = Agenda()
    for number in range(10_000):
        agenda = agenda.put(f"{number * 7919 % 10_000:05d}", "")

    changed = agenda.put("05000", "x")

    shared = sum(any(old is new for old in agenda.parts) for new in changed.parts)
    assert shared == len(changed.parts) - 1
    assert max(map(len, agenda.parts)) <= 96
