"""Whether a worker that is silent still has a connection to the bus, by asking the bus.

Used by `lost_workers`. A worker listens on a line of its own for as long as it is connected. A process that has died
is not, and the bus says at once that nobody listens there; one that is stopped or busy is, whatever it answers.

That nobody listens means something only of a worker that was reached before over the same connection of ours. After a
restart of the bus, or a cut of our own, everybody is unknown until heard and reached again; a worker of an older
release, or one whose credential does not open its line, stays so. Answers come after the beats that were under way
before them.
"""

import asyncio
from collections.abc import Collection
from typing import Protocol

from agentflow import limits
from agentflow.bus import subjects
from agentflow.ids import WorkerId
from agentflow.ports import BusUnavailable, NobodyListens

Heard = tuple[str, WorkerId]  # the pool that a worker was heard in, and its name


class Bus(Protocol):
    @property
    def line(self) -> int: ...

    async def request(self, subject: str, payload: bytes, *, within_s: float) -> bytes: ...


class WorkerLines:
    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._line = bus.line
        self._reached: set[Heard] = set()
        self._unreachable: set[Heard] = set()  # never found on this connection, and not asked again

    def is_new(self) -> bool:
        """Whether our connection is another one than at the last look: nobody is known on it, whom we heard before."""
        if self._line == self._bus.line:
            return False
        self._line = self._bus.line
        self._reached.clear()
        self._unreachable.clear()
        return True

    async def ended(self, known: Collection[Heard], late: Collection[Heard]) -> set[Heard]:
        """Those of the late whose connection has ended. Of the known, those asked for the first time are reached.

        Known are those heard over this connection: another one may only not be back yet, and would count as of an older
        release.
        """
        self._reached &= set(known)
        self._unreachable &= set(known)
        asked = [each for each in known if each in late or each not in self._reached]
        asked = [each for each in asked if each not in self._unreachable]
        line, listens = self._line, await asyncio.gather(*map(self._listens, asked))
        if line != self._bus.line:
            return set()
        nobody = {each for each, somebody in zip(asked, listens, strict=True) if somebody is False}
        self._reached.update(each for each, somebody in zip(asked, listens, strict=True) if somebody)
        self._unreachable |= nobody - self._reached
        return nobody & self._reached

    async def _listens(self, worker: Heard) -> bool | None:
        """None where that cannot be told: it did not answer in time, or the bus is not there."""
        pool, name = worker
        try:
            subject = subjects.of_pool(subjects.worker_line(name), pool)
            await self._bus.request(subject, b"", within_s=limits.WORKER_LOOK_S)
        except NobodyListens:
            return False
        except BusUnavailable:
            return None
        return True
