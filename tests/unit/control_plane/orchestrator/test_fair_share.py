"""Shards are shared evenly by whoever is alive, without asking anybody."""

from hypothesis import given
from hypothesis import strategies as st

from control_plane.orchestrator.ownership import fair_share


@given(st.integers(1, 64), st.sets(st.text(min_size=1, max_size=4), min_size=1, max_size=9))
def test_the_shares_of_all_replicas_are_all_shards_and_differ_by_one_at_most(shards, replicas):
    shares = [fair_share(shards, replica, replicas - {replica}) for replica in replicas]

    assert sum(shares) == shards
    assert max(shares) - min(shares) <= 1


def test_a_replica_that_hears_nobody_takes_everything():
    assert fair_share(16, "me", []) == 16
