"""Who breaks things: at moments and in ways that come from the seed, until the day is healed."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tests.simulation.model.processes import LEASE_S, ControlPlaneMachine, Machine

if TYPE_CHECKING:
    from tests.simulation.model.day import Day


class Nemesis:
    def __init__(self, day: "Day", ways: tuple[str, ...] = ()) -> None:
        self._day = day
        self._only = ways  # how it breaks things, where that is not left to chance
        self._chance = day.chance
        self.is_healed = False
        self.counts: dict[str, int] = {}

    def plan(self, until_s: float) -> None:
        deeds: list[Callable[[], None]] = [
            self._kill,
            self._kill,
            self._stop,
            self._stop,
            self._leave,
            self._cut_bus,
            self._cut_database,
            self._bus_away,
            self._database_away,
            self._wipe_bus,
            self._jump_clock,
        ]
        # A few ways a day, so that they meet in all their pairs over many days.
        if self._only:
            deeds = [deed for deed in deeds if deed.__name__.strip("_") in self._only]
        ways = [self._chance.choice(deeds) for _ in range(self._chance.randint(1, 4))]
        for _ in range(self._chance.randint(0, 7)):
            deed = self._chance.choice(ways)
            self._day.loop.outside(self._do, deed, after_s=0.5 + self._chance.random() * (until_s - 0.5))

    def heal(self) -> None:
        self.is_healed = True
        self._day.broker.is_up = True
        for machine in self._day.machines:
            self._day.loop.resume_process(machine.process)
            if machine.is_up:
                machine.bus.is_cut = False
        for plane in self._day.planes:
            plane.database.is_cut = False
        self._day.broker.back()

    def _do(self, deed: Callable[[], None]) -> None:
        if not self.is_healed:
            name = deed.__name__.strip("_")
            self.counts[name] = self.counts.get(name, 0) + 1
            deed()

    def _any(self) -> Machine:
        return self._chance.choice(self._day.machines)

    def _plane(self) -> ControlPlaneMachine:
        return self._chance.choice(self._day.planes)

    def _later(self, most_s: float, undo: Callable[..., None], *args: Any) -> None:
        self._day.loop.outside(undo, *args, after_s=self._chance.random() * most_s)

    def _kill(self) -> None:
        machine = self._any()
        self._day.trace("kill", machine.process)
        machine.kill()
        self._later(3.0, machine.start)

    def _stop(self) -> None:
        machine = self._any()
        process = machine.process
        self._day.trace("stop", process)
        self._day.loop.stop_process(process)
        self._later(2.5 * LEASE_S, self._day.loop.resume_process, process)

    def _leave(self) -> None:
        machine: Any = self._any()
        self._day.trace("leave", machine.process)
        machine.leave()
        self._later(4.0, machine.start)

    def _cut_bus(self) -> None:
        machine = self._any()
        bus = machine.bus
        self._day.trace("cut from the bus", machine.process)
        bus.is_cut = True
        self._later(5.0, bus.mend)

    def _cut_database(self) -> None:
        plane = self._plane()
        database = plane.database
        self._day.trace("cut from the database", plane.process)
        database.is_cut = True
        self._later(2 * LEASE_S, setattr, database, "is_cut", False)

    def _bus_away(self) -> None:
        broker = self._day.broker
        self._day.trace("bus away")
        broker.is_up = False

        def back() -> None:
            broker.is_up = True
            broker.starts += 1
            broker.back()

        self._later(4.0, back)

    def _database_away(self) -> None:
        self._day.trace("database away")
        databases = [plane.database for plane in self._day.planes]
        for database in databases:
            database.is_cut = True

        def back() -> None:
            for database in databases:
                database.is_cut = False

        self._later(4.0, back)

    def _wipe_bus(self) -> None:
        self._day.broker.wipe()

    def _jump_clock(self) -> None:
        machine = self._any()
        jump_ms = self._chance.choice((-3_000, -1_000, 1_000, 3_000, 10_000))
        self._day.trace("clock jumps", machine.name, jump_ms)
        machine.clock.skew_ms += jump_ms
