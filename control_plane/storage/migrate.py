"""The schema's way up and down: when a process starts, and when somebody asks for it (`af db`).

Several may start at once and one of them migrates. Revisions in `control_plane.storage.migrations` run inside one
transaction that holds a lock, so a migration that fails or is killed leaves nothing behind.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import AsyncConnection

from agentflow.errors import Rejected
from control_plane.storage.database import Database
from control_plane.storage.tables import metadata

_LOCK = 0x61666D6967  # "afmig": any number, as long as every AgentFlow process takes the same one
_NOTHING = "none"


class SchemaTooNew(Rejected):
    code = "AF1205"

    def __init__(self, shown: str, found: str, newest: str) -> None:
        super().__init__(
            f"The schema in {shown} is at revision {found}, which this build does not know (its newest is {newest}).",
            hint="Start the AgentFlow release that migrated this database, or a newer one.",
        )


class UnknownRevision(Rejected):
    code = "AF1207"

    def __init__(self, revision: str, known: list[str]) -> None:
        super().__init__(
            f"There is no revision {revision!r} to go down to from here.",
            hint=f"Name one of {', '.join(known)}." if known else "Nothing is lower than where the schema is.",
        )


class Revisions(msgspec.Struct, frozen=True):
    """Where a schema is, and the newest that this build knows. `none`: there are no tables yet."""

    current: str
    newest: str


async def revisions(database: Database) -> Revisions:
    async with database.owning() as connection:
        return await connection.run_sync(lambda sync: _Schema(sync, database.shown).revisions)


async def upgrade(database: Database) -> Revisions:
    """To the newest revision; says where the schema was."""
    async with _alone(database) as connection:
        return await connection.run_sync(lambda sync: _Schema(sync, database.shown).upgrade())


async def downgrade(database: Database, to: str) -> Revisions:
    """To an older revision, or to `none`. What newer ones added is gone, with what was stored in it."""
    async with _alone(database) as connection:
        return await connection.run_sync(lambda sync: _Schema(sync, database.shown).downgrade(to))


async def differences(database: Database) -> list[str]:
    """How the tables differ from what this build expects; nothing, unless somebody changed them by hand."""
    async with database.owning() as connection:
        return await connection.run_sync(lambda sync: _Schema(sync, database.shown).differences())


@asynccontextmanager
async def _alone(database: Database) -> AsyncIterator[AsyncConnection]:
    async with database.owning() as connection:
        if database.engine == "postgresql":
            # Held until the transaction ends. SQLite's writer holds the whole file from its first statement on.
            await connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
        yield connection


class _Schema:
    """One open connection, seen by Alembic."""

    def __init__(self, connection: Connection, shown: str) -> None:
        self._connection = connection
        self._config = Config()
        self._config.set_main_option("script_location", "control_plane.storage:migrations")
        self._config.set_main_option("path_separator", "os")
        self._config.attributes["connection"] = connection
        scripts = ScriptDirectory.from_config(self._config)
        self._known = sorted(script.revision for script in scripts.walk_revisions())
        newest = scripts.get_current_head() or _NOTHING
        found = MigrationContext.configure(connection).get_current_revision() or _NOTHING
        if found not in (_NOTHING, *self._known):
            raise SchemaTooNew(shown, found, newest)
        self.revisions = Revisions(found, newest)

    def upgrade(self) -> Revisions:
        if self.revisions.current != self.revisions.newest:
            command.upgrade(self._config, "head")
        return self.revisions

    def downgrade(self, to: str) -> Revisions:
        lower = [_NOTHING, *self._known]
        lower = lower[: lower.index(self.revisions.current)]
        if to not in lower:
            raise UnknownRevision(to, lower)
        command.downgrade(self._config, "base" if to == _NOTHING else to)
        return self.revisions

    def differences(self) -> list[str]:
        options = {"include_object": _compared(self._connection)}
        context = MigrationContext.configure(self._connection, opts=options)
        return [_sentence(difference) for difference in compare_metadata(context, metadata)]


def _compared(connection: Connection) -> Callable[..., bool]:
    """Leaves out the parts of divided tables, and what is declared for the other engine."""
    postgres = connection.dialect.name == "postgresql"
    parts = "SELECT inhrelid::regclass::text FROM pg_inherits"
    left_out = set(connection.scalars(text(parts))) if postgres else set()

    def compared(item: Any, name: str | None, kind: str, reflected: bool, _other: Any) -> bool:
        if kind == "table":
            return name not in left_out
        condition = getattr(item, "_ddl_if", None)
        return reflected or condition is None or condition.dialect == connection.dialect.name

    return compared


def _sentence(difference: Any) -> str:
    if isinstance(difference, list):  # several about one column
        return "; ".join(_sentence(one) for one in difference)
    what, *about = difference
    named = [getattr(item, "name", item) for item in about if getattr(item, "name", item)]
    return f"{what.replace('_', ' ')}: {' '.join(str(name) for name in named)}"
