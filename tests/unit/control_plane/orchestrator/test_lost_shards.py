"""What an owner remembers of a shard that another had meanwhile: nothing."""

from collections.abc import Collection

from agentflow.clock import ControlledClock
from control_plane.orchestrator.ownership import Ownership


class Leases:
    """The shard was another's for a while, and is free again."""

    def __init__(self) -> None:
        self.epoch = 0

    async def acquire(self, shards, holder, *, lease_s, steal=False):
        self.epoch += 1
        return {0: self.epoch}


async def test_a_shard_that_is_ours_again_under_another_epoch_is_forgotten_and_taken_up_anew():
    told: list[tuple[str, list[int]]] = []
    owner = Ownership(
        leases=Leases(), bus=None, clock=ControlledClock(), replica="srv_1", shards=1, lease_s=10, alone=False
    )

    async def gained(shards: Collection[int]) -> None:
        told.append(("gained", list(shards)))

    async def lost(shards: Collection[int]) -> None:
        told.append(("lost", list(shards)))

    owner._gained, owner._lost = gained, lost
    await owner._take([0])
    await owner._take([0])

    assert told == [("gained", [0]), ("lost", [0]), ("gained", [0])]
    assert owner.epochs == {0: 2}
