"""`python -m tests.faults.failpoints`: a control plane that stops itself where a test wants it to.

A failpoint lies before and after every call of a port through which a control plane reaches its database or its bus,
and before every commit of a transaction. They are found by looking at the ports, so a new call is a new failpoint; the
product itself knows nothing of them. What to do is said in files, so a running process can be told.
"""

import inspect
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import wraps
from pathlib import Path
from typing import Any

from agentflow.bus.nats_jetstream import JetStreamBus
from agentflow.ports import EventStore, MessageBus, ShardLeases, ShardLost
from control_plane.orchestrator.admission import Room
from control_plane.storage.admissions import SqlRoom
from control_plane.storage.database import Database
from control_plane.storage.event_store import SqlEventStore
from control_plane.storage.leases import SqlShardLeases

PORTS: dict[type, type] = {
    EventStore: SqlEventStore,
    ShardLeases: SqlShardLeases,
    MessageBus: JetStreamBus,
    Room: SqlRoom,
}
TRANSACTIONS = ("write", "system_write")


def calls(port: type) -> list[str]:
    return sorted(name for name, member in vars(port).items() if inspect.iscoroutinefunction(member))


def failpoints() -> list[str]:
    """All there are. Streams that are read (`replay`) are no calls: no control plane reads one."""
    around = [f"{port.__name__}.{name}" for port in PORTS for name in calls(port)]
    return [f"{name}/{side}" for name in around for side in ("before", "after")] + [
        f"Database.{name}/commit" for name in TRANSACTIONS
    ]


class Switchboard:
    """Shared by a test and one process, through a folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self._armed = folder / "armed"
        self._struck = folder / "struck"
        self._passed = folder / "passed"
        self._known: set[str] = set()

    def arm(self, failpoint: str) -> None:
        self._struck.unlink(missing_ok=True)
        said = self.folder / "said"
        said.write_text(failpoint)
        said.rename(self._armed)  # whole or not at all

    def has_struck(self) -> bool:
        return self._struck.exists()

    def passed(self) -> set[str]:
        """Every failpoint that the process has come by."""
        return set(self._passed.read_text().split()) if self._passed.exists() else set()

    def pass_by(self, failpoint: str) -> None:
        if failpoint not in self._known:
            self._known.add(failpoint)
            with self._passed.open("a") as list_:
                list_.write(failpoint + "\n")
        if self._armed.exists() and self._armed.read_text() == failpoint:
            self._armed.unlink()
            self._struck.touch()
            os.kill(os.getpid(), signal.SIGSTOP)


def place(board: Switchboard) -> None:
    """Into the adapters of this process."""
    for port, adapter in PORTS.items():
        for name in calls(port):
            setattr(adapter, name, _around(getattr(adapter, name), f"{port.__name__}.{name}", board))
    for name in TRANSACTIONS:
        setattr(Database, name, _before_commit(getattr(Database, name), f"Database.{name}", board))


def _around(call: Callable[..., Any], name: str, board: Switchboard) -> Callable[..., Any]:
    @wraps(call)
    async def passing(*args: Any, **options: Any) -> Any:
        board.pass_by(f"{name}/before")
        try:
            result = await call(*args, **options)
        except ShardLost:
            board.pass_by(f"{name}/fenced")
            raise
        board.pass_by(f"{name}/after")
        return result

    return passing


def _before_commit(transaction: Callable[..., Any], name: str, board: Switchboard) -> Callable[..., Any]:
    @asynccontextmanager
    async def passing(*args: Any, **options: Any) -> AsyncIterator[Any]:
        async with transaction(*args, **options) as connection:
            yield connection
            board.pass_by(f"{name}/commit")

    return passing


if __name__ == "__main__":
    from control_plane.__main__ import main

    place(Switchboard(Path(os.environ["FAILPOINTS"])))  # noqa: TID251 - a test's own, no setting of the product
    sys.exit(main())
