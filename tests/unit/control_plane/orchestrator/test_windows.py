"""A tenant's flood waits in its own window, nothing that waits is ever forgotten, and the more urgent goes first."""

from hypothesis import given
from hypothesis import strategies as st

from control_plane.orchestrator.windows import Place, Windows


def place(number: int) -> Place:
    return Place("exec", f"step-{number}", 1)


def test_only_so_many_of_a_tenant_go_out_and_the_next_follow_as_they_come_back():
    windows = Windows(2)

    assert [windows.enter("a", "acme", place(n)) for n in range(4)] == [True, True, False, False]
    assert windows.over(place(0)) == [place(2)]
    assert windows.over(place(2)) == [place(3)]
    assert windows.over(place(3)) == []


def test_other_tenants_and_other_agents_have_windows_of_their_own():
    windows = Windows(1)
    windows.enter("a", "acme", place(1))

    assert not windows.enter("a", "acme", place(2))
    assert windows.enter("a", "other", place(3))
    assert windows.enter("b", "acme", place(4))


def test_the_higher_priority_goes_first_and_among_equals_who_came_first():
    windows = Windows(1)
    windows.enter("a", "acme", place(0))
    for number, priority in ((1, 0), (2, 5), (3, 0), (4, 5)):
        windows.enter("a", "acme", place(number), priority=priority)

    order, last = [], place(0)
    while following := windows.over(last):
        order += following
        (last,) = following

    assert [place.path for place in order] == ["step-2", "step-4", "step-1", "step-3"]


def test_entering_again_changes_nothing_and_one_that_gives_up_waiting_takes_nobodys_turn():
    windows = Windows(1)
    windows.enter("a", "acme", place(0))
    assert not windows.enter("a", "acme", place(1))
    windows.enter("a", "acme", place(2))

    assert windows.enter("a", "acme", place(0))
    assert not windows.enter("a", "acme", place(1))
    assert windows.holds(place(1))
    assert windows.over(place(1)) == []
    assert windows.over(place(0)) == [place(2)]
    assert windows.over(place(99)) == []


@given(
    size=st.integers(1, 4),
    actions=st.lists(
        st.tuples(st.booleans(), st.integers(0, 20), st.sampled_from("ab"), st.integers(-1, 1)), max_size=80
    ),
)
def test_no_window_is_ever_exceeded_and_whoever_waits_gets_out_in_the_end(size, actions):
    windows = Windows(size)
    tenant_of: dict[Place, str] = {}
    out: set[Place] = set()
    for enters, number, tenant, priority in actions:
        one = place(number)
        if enters:
            tenant = tenant_of.setdefault(one, tenant)
            if windows.enter("agent", tenant, one, priority=priority):
                out.add(one)
        else:
            out.discard(one)
            tenant_of.pop(one, None)
            out.update(windows.over(one))
        for each in "ab":
            assert sum(tenant_of[it] == each for it in out) <= size
    while out:
        one = out.pop()
        tenant_of.pop(one)
        out.update(windows.over(one))
    assert not tenant_of, "somebody waits for ever"
