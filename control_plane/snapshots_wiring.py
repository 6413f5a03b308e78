"""How snapshots are put together: for a control plane, and for the purge in a process of its own."""

from agentflow.clock import Clock
from agentflow.ids import UlidSource
from agentflow.ports import ArtifactStore
from agentflow.settings import Settings
from control_plane.registry.workflows import WorkflowRegistry
from control_plane.snapshots.book import Snapshots
from control_plane.snapshots.ended import SnapshotsOfEnded
from control_plane.snapshots.taking import Taking
from control_plane.storage.database import Database
from control_plane.storage.ended import SqlEndings
from control_plane.storage.event_store import SqlEventStore
from control_plane.storage.retention_rules import parse_rules
from control_plane.storage.sealing import FieldSeal
from control_plane.storage.snapshots import SqlSnapshots
from control_plane.storage.tables.types import Retention
from control_plane.storage.workflows import SqlWorkflows


def snapshots(settings: Settings, db: Database, artifacts: ArtifactStore, clock: Clock) -> Snapshots:
    rules = parse_rules(settings.retention)
    return Snapshots(
        store=SqlSnapshots(db),
        taking=_taking(settings, db, artifacts, clock),
        artifacts=artifacts,
        kept_for_good=lambda tenant: rules.days(tenant, Retention.SNAPSHOT) is None,
    )


def snapshots_of_ended(settings: Settings, db: Database, artifacts: ArtifactStore, clock: Clock) -> SnapshotsOfEnded:
    taking = _taking(settings, db, artifacts, clock)
    return SnapshotsOfEnded(taking, SqlEndings(db), tenants=settings.snapshot_tenants(), clock=clock)


def _taking(settings: Settings, db: Database, artifacts: ArtifactStore, clock: Clock) -> Taking:
    store, ids = SqlSnapshots(db), UlidSource(clock.now_ms)
    return Taking(
        store=store,
        events=SqlEventStore(db, seal=FieldSeal(settings.key_ring())),
        costs=store,
        definition=WorkflowRegistry(SqlWorkflows(db), ids=ids, clock=clock).find,
        artifacts=artifacts,
        new_id=ids.ulid,
        now_ms=clock.now_ms,
    )
