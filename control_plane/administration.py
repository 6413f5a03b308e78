"""What an operator asks of the database outside of any request: the answer is one JSON value.

Run as `python -m control_plane db …` by `af db`, which belongs to the kernel and may not import storage. Opens only the
database; no bus is needed.
"""

import ssl
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from agentflow.clock import SystemClock
from agentflow.errors import Rejected
from control_plane.storage.database import Database, database
from control_plane.storage.days import make_days
from control_plane.storage.migrate import differences, downgrade, revisions, upgrade
from control_plane.storage.rebuild import rebuild
from control_plane.storage.sealing import FieldSeal


class UnknownTask(Rejected):
    code = "AF1209"

    def __init__(self, asked: Sequence[str]) -> None:
        super().__init__(
            f"`python -m control_plane {' '.join(asked)}` is nothing it can do.",
            hint=f"Without arguments it serves; otherwise: db {', db '.join(_TASKS)}.",
        )


class SchemaDiffers(Rejected):
    code = "AF1208"

    def __init__(self, shown: str, found: Sequence[str]) -> None:
        super().__init__(
            f"The tables in {shown} are not what this build expects: {'; '.join(found)}.",
            hint="Run `af db upgrade`; if that changes nothing, somebody altered the tables by hand: undo it.",
        )


async def administer(
    arguments: Sequence[str],
    *,
    dsn: str,
    migrate_dsn: str | None,
    seal: FieldSeal,
    tls: ssl.SSLContext | None = None,
) -> str:
    match arguments:
        case ["db", str(task), *rest] if task in _TASKS and len(rest) == _TASKS[task][1]:
            async with database(dsn, migrate_dsn=migrate_dsn, tls=tls) as db:
                more = [seal] if task == "rebuild" else rest
                return msgspec.json.encode(await _TASKS[task][0](db, *more)).decode()
        case _:
            raise UnknownTask(arguments)


async def _current(db: Database) -> dict[str, object]:
    return {**msgspec.structs.asdict(await revisions(db)), "database": db.shown}


async def _upgrade(db: Database) -> dict[str, object]:
    before = await upgrade(db)
    days = await make_days(db, SystemClock().now_ms())
    return {"from": before.current, "to": before.newest, "days_made": days, "database": db.shown}


async def _downgrade(db: Database, to: str) -> dict[str, object]:
    before = await downgrade(db, to)
    return {"from": before.current, "to": to, "database": db.shown}


async def _check(db: Database) -> dict[str, object]:
    at = await revisions(db)
    found = [] if at.current == at.newest else [f"they are at revision {at.current} and the newest is {at.newest}"]
    found = found or await differences(db)
    if found:
        raise SchemaDiffers(db.shown, found)
    return await _current(db)


async def _rebuild(db: Database, seal: FieldSeal) -> dict[str, object]:
    return {**msgspec.structs.asdict(await rebuild(db, seal=seal)), "database": db.shown}


_Task = Callable[..., Awaitable[dict[str, object]]]
_TASKS: dict[str, tuple[_Task, int]] = {  # and how many arguments each takes
    "current": (_current, 0),
    "upgrade": (_upgrade, 0),
    "downgrade": (_downgrade, 1),
    "check": (_check, 0),
    "rebuild": (_rebuild, 0),
}
