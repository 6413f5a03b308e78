"""How many steps of one tenant an agent is given at a time, so that a flood of one does not bury another's.

A mailbox is served in the order in which it was filled. So each tenant has a window for each agent: what does not fit
waits here, the higher priority first, and goes out as others come back. Pure: no clock, no waiting. Holds no truth
either: whoever takes an execution up enters its steps again.
"""

import heapq
from typing import NamedTuple

from agentflow.ids import AgentName, ExecutionId, StepPath, TenantId


class Place(NamedTuple):
    """One attempt of one step."""

    execution: ExecutionId
    path: StepPath
    attempt: int


class _Window:
    __slots__ = ("out", "waiting")

    def __init__(self) -> None:
        self.out: set[Place] = set()
        self.waiting: list[tuple[int, int, Place]] = []


class Windows:
    def __init__(self, size: int) -> None:
        self._size = size
        self._windows: dict[tuple[AgentName, TenantId], _Window] = {}
        self._window_of: dict[Place, tuple[AgentName, TenantId]] = {}  # of all that are out or wait
        self._held: set[Place] = set()
        self._entered = 0
        self._parked: dict[Place, None] = {}  # whatever the windows have room for

    def enter(self, agent: AgentName, tenant: TenantId, place: Place, *, priority: int = 0) -> bool:
        """Whether it may go out now; also if it is out already. Otherwise `over` of another one brings it back."""
        if place in self._window_of:
            return place not in self._held
        key = (agent, tenant)
        window = self._windows.get(key)
        if window is None:
            window = self._windows[key] = _Window()
        self._window_of[place] = key
        if len(window.out) < self._size:
            window.out.add(place)
            return True
        self._entered += 1
        heapq.heappush(window.waiting, (-priority, self._entered, place))
        self._held.add(place)
        return False

    def park(self, place: Place) -> list[Place]:
        """It was never sent and must not go out now; `parked` shows it again. Those that may go in its place."""
        following = self.over(place)
        self._parked[place] = None
        return following

    def parked(self) -> list[Place]:
        return list(self._parked)

    def unpark(self, place: Place) -> None:
        self._parked.pop(place, None)

    def over(self, place: Place) -> list[Place]:
        """It has come back, or nobody waits for it any more. Those that may go out now."""
        self._parked.pop(place, None)
        key = self._window_of.pop(place, None)
        if key is None:
            return []
        window = self._windows[key]
        if place in self._held:
            self._held.discard(place)  # its entry in the line is passed over when its turn comes
            return []
        window.out.discard(place)
        following: list[Place] = []
        while window.waiting and len(window.out) < self._size:
            _, _, next_one = heapq.heappop(window.waiting)
            if next_one in self._held:
                self._held.discard(next_one)
                window.out.add(next_one)
                following.append(next_one)
        if not window.out and not window.waiting:
            del self._windows[key]
        return following

    def __contains__(self, place: Place) -> bool:
        return place in self._window_of

    def holds(self, place: Place) -> bool:
        """Whether it waits here and was never sent."""
        return place in self._held or place in self._parked
