"""Brings the schema up to date when a process starts; several may start at once and one of them does it.

Runs the revisions in `control_plane.storage.migrations` inside one transaction that holds a lock, so a failed
migration leaves nothing behind.
"""

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text

from agentflow.errors import Rejected
from control_plane.storage.database import Database

_LOCK = 0x61666D6967  # "afmig": any number, as long as every AgentFlow process takes the same one


class SchemaTooNew(Rejected):
    code = "AF1205"

    def __init__(self, shown: str, found: str, newest: str) -> None:
        super().__init__(
            f"The schema in {shown} is at revision {found}, which this build does not know (its newest is {newest}).",
            hint="Start the AgentFlow release that migrated this database, or a newer one.",
        )


async def upgrade(database: Database) -> None:
    async with database.owning() as connection:
        if database.engine == "postgresql":
            # Held until the transaction ends. SQLite's writer holds the whole file from its first statement on.
            await connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
        await connection.run_sync(_upgrade, database.shown)


def _upgrade(connection: Connection, shown: str) -> None:
    config = Config()
    config.set_main_option("script_location", "control_plane.storage:migrations")
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    scripts = ScriptDirectory.from_config(config)
    known = {script.revision for script in scripts.walk_revisions()}
    newest = scripts.get_current_head() or "none"
    found = MigrationContext.configure(connection).get_current_revision()
    if found is not None and found not in known:
        raise SchemaTooNew(shown, found, newest)
    if found != newest:
        command.upgrade(config, "head")
