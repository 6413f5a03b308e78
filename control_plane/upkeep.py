"""What an operator asks of what is stored: rekey, plan and run the purge, report. The answer is one JSON value.

Run as `python -m control_plane upkeep …` by `af`, which belongs to the kernel and may not import storage. Opens the
database and the artifact store; no bus is needed, and control planes may go on meanwhile.
"""

import sys
from collections.abc import Sequence

import msgspec

from agentflow.artifacts.opening import open_artifacts, open_keeper
from agentflow.artifacts.store import KeptArtifacts
from agentflow.clock import SystemClock
from agentflow.errors import Rejected
from agentflow.settings import Settings
from control_plane.daily_purge import ALONG, end_with_parent
from control_plane.snapshots_wiring import snapshots_of_ended
from control_plane.storage.database import Database, database
from control_plane.storage.exports import Exports
from control_plane.storage.rekey import rekey
from control_plane.storage.retention import RetentionJob
from control_plane.storage.retention_rules import parse_rules
from control_plane.storage.sealing import FieldSeal
from control_plane.storage.usage import storage_report


class UnknownUpkeep(Rejected):
    code = "AF1621"

    def __init__(self, asked: Sequence[str]) -> None:
        super().__init__(
            f"`python -m control_plane upkeep {' '.join(asked)}` is nothing it can do.",
            hint="It can: rekey, retention-plan, retention-run, storage-report. `af` calls it by these names.",
        )


async def upkeep(settings: Settings, arguments: Sequence[str]) -> str:
    async with database(settings.db_dsn, migrate_dsn=settings.db_migrate_dsn, tls=settings.database_tls()) as db:
        artifacts = await open_artifacts(settings.artifacts_url, settings.key_ring())
        return msgspec.json.encode(await _answer(settings, arguments, db, artifacts)).decode()


async def _answer(settings: Settings, arguments: Sequence[str], db: Database, artifacts: KeptArtifacts) -> object:
    match arguments:
        case ["rekey"]:
            return await rekey(db, FieldSeal(settings.key_ring()), artifacts, _progress)
        case ["retention-plan"]:
            return await retention_job(settings, db, artifacts).plan(SystemClock().now_ms())
        case ["retention-run", *rest] if rest in ([], [ALONG]):
            if rest:
                end_with_parent()
            return await retention_job(settings, db, artifacts).run(SystemClock().now_ms())
        case ["storage-report"]:
            return await storage_report(db, artifacts)
        case _:
            raise UnknownUpkeep(arguments)


def retention_job(settings: Settings, db: Database, artifacts: KeptArtifacts) -> RetentionJob:
    keeper = None if settings.retention_export_url is None else open_keeper(settings.retention_export_url)
    ended = snapshots_of_ended(settings, db, artifacts, SystemClock())
    return RetentionJob(db, artifacts, parse_rules(settings.retention), Exports(keeper), ended.before_purge)


def _progress(kind: str, count: int) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"\r{kind}: {count}   ")
