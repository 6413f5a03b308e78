"""What one connection has committed and need not ask for again: the newest version of executions that are open.

An append must find the event before its own. Whoever committed that event through the same connection, under the same
epoch of the lease, knows that it is there: nobody else may write to the shard while the lease is current (the append
checks that), nothing of an open execution is ever removed, and a server that lost what it had confirmed has closed the
connection. A new connection therefore begins with nothing known; so does an execution that has ended, because a purge
may take it. Everything else is looked up by the append itself, so what is missing here costs time and nothing more.
"""

from collections.abc import Iterable

from agentflow.ids import ExecutionId
from agentflow.limits import WRITTEN_MAX

Reached = tuple[str, int, int]  # tenant, version, epoch


class Written:
    def __init__(self) -> None:
        self.reached: dict[ExecutionId, Reached] = {}
        self.leases: tuple[int, dict[int, int]] | None = None  # SQLite: as of one state of the file

    def learn(self, open_ones: dict[ExecutionId, Reached], ended: Iterable[ExecutionId]) -> None:
        """After the commit, never before."""
        self.reached.update(open_ones)
        for execution in ended:
            self.reached.pop(execution, None)
        while len(self.reached) > WRITTEN_MAX:
            del self.reached[next(iter(self.reached))]
