"""How bad a day is: how often each thing goes wrong on it, drawn from its seed, and the draws themselves."""

import random

import msgspec


class Weather(msgspec.Struct, frozen=True):
    """Chances in [0, 1). Most days are mild in most ways, so that faults meet working parts and not only each other."""

    refused: float
    unanswered: float
    lost: float
    doubled: float
    slow: float


def weather(chance: random.Random) -> Weather:
    def sometimes(most: float) -> float:
        return chance.random() * most if chance.random() < 0.4 else 0.0

    return Weather(
        refused=sometimes(0.06),
        unanswered=sometimes(0.10),
        lost=sometimes(0.25),
        doubled=sometimes(0.15),
        slow=sometimes(0.10),
    )


CALM = Weather(0.0, 0.0, 0.0, 0.0, 0.0)


class Fates:
    """Draws for one day. `calm` ends whatever goes wrong by chance."""

    def __init__(self, chance: random.Random, today: Weather) -> None:
        self.chance = chance
        self.today = today
        self.unanswered = 0

    def calm(self) -> None:
        self.today = CALM

    def of_a_transaction(self) -> str:
        drawn = self.chance.random()
        if drawn < self.today.refused:
            return "refused"
        if drawn < self.today.refused + self.today.unanswered:
            self.unanswered += 1
            return "unanswered"
        return "done"

    def is_lost(self) -> bool:
        return self.chance.random() < self.today.lost

    def is_doubled(self) -> bool:
        return self.chance.random() < self.today.doubled

    def delay_s(self) -> float:
        """Over the network, one way."""
        if self.today.slow and self.chance.random() < self.today.slow:
            return self.chance.random() * 2.0
        return 0.0005 + self.chance.random() * 0.004

    def commit_s(self) -> float:
        return self.delay_s() + 0.001
