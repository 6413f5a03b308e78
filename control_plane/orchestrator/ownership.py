"""Which shards are ours: kept by leases in the database, shared evenly among the replicas that are alive.

The leases decide who owns a shard, and their epochs are checked by every append; who is alive is only heard on the
bus, and only used to share fairly. A wrong idea of it costs balance for a moment, never an execution.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from contextlib import suppress

import structlog

from agentflow.clock import Clock
from agentflow.errors import Unavailable
from agentflow.ports import MessageBus, ShardLeases, Subscription

_log = structlog.get_logger(__name__)

MEMBERS = "control.members"  # broadcast: `+replica` is there, `-replica` goes, `=replica` has let go of shards
TURNS_A_LEASE = 3  # two turns may fail before a lease is lost


def fair_share(shards: int, replica: str, alive: Collection[str]) -> int:
    """How many shards a replica should have: over all replicas every shard once, and no two differ by more than one."""
    everyone = sorted({*alive, replica})
    each, rest = divmod(shards, len(everyone))
    return each + (1 if everyone.index(replica) < rest else 0)


Changed = Callable[[Collection[int]], Awaitable[None]]


async def _nobody(_: Collection[int]) -> None:
    """Who is told before anybody has begun."""


class Ownership:
    def __init__(
        self,
        *,
        leases: ShardLeases,
        bus: MessageBus,
        clock: Clock,
        replica: str,
        shards: int,
        lease_s: float,
        alone: bool,
    ) -> None:
        self._leases = leases
        self._bus = bus
        self._clock = clock
        self.replica = replica
        self._shards = shards
        self._lease_s = lease_s
        self._alone = alone  # nobody else can be at this database: what is held is held by somebody who has died
        self._gained: Changed = _nobody
        self._lost: Changed = _nobody
        self.epochs: dict[int, int] = {}
        self._renewed_s = clock.monotonic_s()
        self._heard_s: dict[str, float] = {}
        self._news = asyncio.Event()

    async def begin(self, *, gained: Changed, lost: Changed) -> Subscription:
        """Listen for the others, and take what is there for us.

        From now on `gained` takes shards up and `lost` drops all that is known of them; both are awaited before the
        next turn.
        """
        self._gained, self._lost = gained, lost
        listening = await self._bus.listen(MEMBERS, self._heard)
        if self._alone:
            await self._take(range(self._shards), steal=True)
        await self.turn()
        return listening

    async def run(self) -> None:
        while True:
            napping = asyncio.ensure_future(self._clock.sleep(self._lease_s / TURNS_A_LEASE))
            hearing = asyncio.ensure_future(self._news.wait())
            try:
                await asyncio.wait((napping, hearing), return_when=asyncio.FIRST_COMPLETED)
            finally:
                napping.cancel()
                hearing.cancel()
            self._news.clear()
            await self.turn()

    async def turn(self) -> None:
        """Prolong what we hold, then take or give until our share is fair."""
        await self._say("+")
        try:
            await self._renew()
            share = fair_share(self._shards, self.replica, self._alive())
            if len(self.epochs) > share:
                await self._give_back(sorted(self.epochs)[share:])
            elif len(self.epochs) < share:
                held = {lease.shard for lease in await self._leases.leases() if lease.holder and lease.left_s > 0}
                free = [shard for shard in range(self._shards) if shard not in held]
                await self._take(free[: share - len(self.epochs)])
        except Unavailable as error:
            _log.warning("shards.turn_failed", reason=error.message)
            # Past the lease others may own our shards: stop before we are refused.
            if not self.is_current():
                await self.forget(list(self.epochs), why="ran out")

    def is_current(self) -> bool:
        """Whether nobody else can have taken what we hold: what we remember of it is all there is to know."""
        return self._clock.monotonic_s() - self._renewed_s < self._lease_s

    async def forget(self, shards: Collection[int], *, why: str) -> None:
        """They are not ours any more, whatever the reason."""
        ours = [shard for shard in shards if self.epochs.pop(shard, None) is not None]
        if ours:
            _log.info("shards.lost", shards=sorted(ours), held=len(self.epochs), why=why)
            await self._lost(ours)
            self._news.set()

    async def leave(self) -> None:
        """Give everything back, and say so. What cannot be given back runs out by itself."""
        held = list(self.epochs)
        await self.forget(held, why="leaving")
        with suppress(Unavailable):
            await self._leases.release(self.replica, held)
        await self._say("-")

    async def _renew(self) -> None:
        if self.epochs:
            asked_s = self._clock.monotonic_s()
            ours = await self._answered(self._leases.renew(self.replica, lease_s=self._lease_s))
            self._renewed_s = asked_s
            taken = [shard for shard, epoch in self.epochs.items() if ours.get(shard) != epoch]
            await self.forget(taken, why="taken over")
            unserved = [shard for shard in ours if shard not in self.epochs]
            if unserved:
                # Taken or given back without an answer: renewed for ever, they would be nobody's.
                await self._leases.release(self.replica, unserved)
                await self._say("=")

    async def _answered(self, renewing: Coroutine[None, None, dict[int, int]]) -> dict[int, int]:
        """Past the lease others own our shards, however long the database takes to say so: we let go before it does.

        Or what is sent to those shards would go on reaching us, who can commit nothing, and not them.
        """
        asking = asyncio.ensure_future(renewing)
        try:
            left_s = self._renewed_s + self._lease_s - self._clock.monotonic_s()
            await asyncio.wait([asking], timeout=max(0.0, left_s))
            if not asking.done():
                await self.forget(list(self.epochs), why="ran out")
            return await asking
        finally:
            asking.cancel()

    async def _take(self, shards: Collection[int], *, steal: bool = False) -> None:
        asked_s = self._clock.monotonic_s()
        taken: Mapping[int, int] = await self._leases.acquire(
            list(shards), self.replica, lease_s=self._lease_s, steal=steal
        )
        # Ours once more under another epoch: somebody had them in between, and what we remember of them is old.
        await self.forget(
            [one for one, epoch in taken.items() if self.epochs.get(one, epoch) != epoch], why="taken over"
        )
        new = [shard for shard in taken if shard not in self.epochs]
        if new:
            if not self.epochs:
                self._renewed_s = asked_s
            self.epochs.update(taken)
            _log.info("shards.gained", shards=sorted(new), held=len(self.epochs))
            try:
                await self._gained(new)
            except Unavailable:
                # Held and not served would be worse than not held: let go, and try again with the next turn.
                await self._give_back(new)
                raise

    async def _give_back(self, shards: list[int]) -> None:
        """First stop, then let go: whoever takes them up next never meets us there."""
        await self.forget(shards, why="shared")
        await self._leases.release(self.replica, shards)
        await self._say("=")

    def _alive(self) -> Collection[str]:
        silent_s = self._clock.monotonic_s() - self._lease_s
        self._heard_s = {replica: at_s for replica, at_s in self._heard_s.items() if at_s > silent_s}
        return self._heard_s

    def _heard(self, payload: bytes) -> None:
        word, replica = payload[:1], payload[1:].decode(errors="replace")
        if replica == self.replica:
            return
        known = replica in self._heard_s
        if word == b"-":
            self._heard_s.pop(replica, None)
        else:
            self._heard_s[replica] = self._clock.monotonic_s()
        if word != b"+" or not known:
            self._news.set()  # somebody came, went or let go: there may be something to take or to give

    async def _say(self, word: str) -> None:
        with suppress(Unavailable):  # then they hear us later, and share a little later
            await self._bus.broadcast(MEMBERS, f"{word}{self.replica}".encode())
