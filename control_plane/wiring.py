"""The composition root of the control plane: the only file that names its adapters and its settings together."""

import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from importlib.metadata import version

import msgspec

from agentflow.artifacts.claim_check import ClaimCheck
from agentflow.artifacts.opening import open_artifacts
from agentflow.artifacts.store import KeptArtifacts
from agentflow.bus import subjects
from agentflow.bus.nats_jetstream import JetStreamBus, jetstream
from agentflow.clock import Clock
from agentflow.contracts.agent_state import StateRef
from agentflow.contracts.pools import Pools
from agentflow.contracts.step import ReleaseState
from agentflow.ids import TenantId, UlidSource
from agentflow.settings import Settings, allowed_environment, as_environment, inherited_environment
from control_plane.audit.log import AuditLog
from control_plane.audit.sequencer import Sequencer
from control_plane.audit.tool_records import ToolRecords
from control_plane.audit.trail import Trail
from control_plane.costs.book import BudgetBook
from control_plane.costs.purse import Purse
from control_plane.daily_purge import daily_purge
from control_plane.deploying import Deployments, register_within_quota
from control_plane.estimating import Estimates
from control_plane.identity_wiring import open_identity
from control_plane.jobs.runner import Jobs
from control_plane.live.feed import Feed
from control_plane.lost_workers import care_for_lost_workers
from control_plane.orchestrator.bounds import Bounds
from control_plane.orchestrator.hearing import Hearing
from control_plane.orchestrator.orchestrator import Orchestrator
from control_plane.orchestrator.ownership import Ownership
from control_plane.pausing import Pausing
from control_plane.registry.agent_states import AgentStates
from control_plane.registry.agents import LiveAgents
from control_plane.registry.tool_questions import answer_definitions, tests_on
from control_plane.registry.tools import ToolRegistry
from control_plane.registry.workflows import WorkflowRegistry
from control_plane.replaying import Replays
from control_plane.schedules.book import ScheduleBook
from control_plane.schedules.clockwork import Clockwork
from control_plane.service import ControlPlane, Setup
from control_plane.snapshots_wiring import snapshots, snapshots_of_ended
from control_plane.storage.admissions import SqlRoom
from control_plane.storage.agent_states import SqlAgentStates
from control_plane.storage.audit import SqlAudit
from control_plane.storage.budgets import SqlBudgets
from control_plane.storage.costs import SqlCosts
from control_plane.storage.database import Database, database
from control_plane.storage.days import days_made
from control_plane.storage.deployments import SqlDeployments
from control_plane.storage.event_store import SqlEventStore
from control_plane.storage.executions import SqlExecutions
from control_plane.storage.jobs import SqlJobs
from control_plane.storage.leases import SqlShardLeases, record_shards
from control_plane.storage.live import SqlLiveEvents
from control_plane.storage.migrate import upgrade
from control_plane.storage.plans import SqlPlans
from control_plane.storage.request_keys import SqlRequestKeys
from control_plane.storage.retention_schedule import retention_kept
from control_plane.storage.schedules import SqlSchedules
from control_plane.storage.sealing import FieldSeal
from control_plane.storage.shared_clock import shared_clock
from control_plane.storage.storage_counts import StorageCounts
from control_plane.storage.tasks import SqlTasks
from control_plane.storage.tools import SqlTools
from control_plane.storage.workflows import SqlWorkflows
from control_plane.traces import Traces
from control_plane.upkeep import retention_job


@asynccontextmanager
async def _storage(settings: Settings) -> AsyncIterator[Database]:
    """The database, fit to be used: what is wrong with it is told before anything else is tried."""
    async with database(settings.db_dsn, migrate_dsn=settings.db_migrate_dsn, tls=settings.database_tls()) as db:
        await upgrade(db)
        await record_shards(db, settings.shards)
        yield db


def _bus(settings: Settings) -> AbstractAsyncContextManager[JetStreamBus]:
    return jetstream(settings.nats_url, name="control-plane", replicas=settings.nats_replicas, tls=settings.nats_tls())


@asynccontextmanager
async def control_plane(settings: Settings) -> AsyncIterator[ControlPlane]:
    """Build it leaf to root and set it to work; leaving the block takes it down in reverse."""
    async with (
        _storage(settings) as db,
        shared_clock(db) as clock,
        _bus(settings) as bus,
        AsyncExitStack() as stack,
    ):
        ids, ring = UlidSource(clock.now_ms), settings.key_ring()
        artifacts = await open_artifacts(settings.artifacts_url, ring)
        claims, seal = ClaimCheck(artifacts), FieldSeal(ring)
        store = SqlEventStore(db, snapshot_every=settings.snapshot_every, seal=seal)
        tools = ToolRegistry(SqlTools(db), clock=clock)
        registry = WorkflowRegistry(SqlWorkflows(db), ids=ids, clock=clock, tools=tools)
        await answer_definitions(bus, tools)
        pools = Pools(settings.shared_agent_names())
        agents = await _agents(settings, db, bus, clock, pools)

        identity = await stack.enter_async_context(open_identity(settings, db, bus, clock, ids, hosted=agents.own))
        audit = SqlAudit(db, clock)
        trail = await stack.enter_async_context(_trail(audit, bus, clock, ids))

        budgets, purse = _budgets(db, bus, clock, ids, trail)
        bounds = _bounds(settings, SqlRoom(db, clock), identity.tenants.at_once, purse)
        ownership = _ownership(settings, db, bus, clock, ids)
        orchestrator = _orchestrator(settings, store, bus, registry, clock, ids, ownership, claims, bounds, agents)
        schedules, executions = SqlSchedules(db), SqlExecutions(db, seal=seal)
        records = snapshots(settings, db, artifacts, clock)
        replays = Replays(store, records, registry, executions, claims)
        register = partial(register_within_quota, identity.tenants, registry)
        deployments = Deployments(SqlDeployments(db), replays, register=register, now_ms=clock.now_ms)
        plane = ControlPlane(
            identity=identity,
            trail=trail,
            audit=AuditLog(audit, signing_key=identity.signing_keys.current, clock=clock),
            costs=SqlCosts(db),
            estimates=_estimates(db, registry, tools, executions, store),
            budgets=budgets,
            purse=purse,
            registry=registry,
            tools=tools,
            ask_worker=tests_on(bus, pools),
            orchestrator=orchestrator,
            executions=executions,
            events=store,
            tasks=SqlTasks(db, seal=seal),
            agents=agents,
            claims=claims,
            artifacts=artifacts,
            parts_ready=partial(_parts_ready, db, bus),
            new_request_id=ids.ulid,
            now_ms=clock.now_ms,
            request_keys=SqlRequestKeys(db, clock),
            plans=SqlPlans(db, seal=seal),
            live=Feed(SqlLiveEvents(db, seal=seal), listen=partial(bus.listen, subjects.ALL_WORKFLOWS_OUT)),
            schedules=ScheduleBook(schedules, bus=bus, clock=clock, new_id=ids.ulid),
            jobs=Jobs(SqlJobs(db), {**replays.jobs, **deployments.jobs}, clock=clock, new_id=ids.ulid),
            replays=replays,
            deployments=deployments,
            traces=Traces(executions, store, audit),
            snapshots=records,
            pausing=Pausing(identity.tenants, executions, orchestrator, trail, clock.now_ms),
            setup=_setup(settings, db),
        )
        upkeep = retention_kept(db, _purge(settings, db, artifacts, clock), clock)
        clockwork = Clockwork(schedules, start=plane.start_reserved, is_ours=orchestrator.owns, bus=bus, clock=clock)
        following = snapshots_of_ended(settings, db, artifacts, clock).following(orchestrator.owns)
        counting = StorageCounts(db, artifacts, clock).counting(orchestrator.owns)
        async with days_made(db, clock), upkeep, _at_work(plane, bus, clock), clockwork.running(), following, counting:
            yield plane


@asynccontextmanager
async def _at_work(plane: ControlPlane, bus: JetStreamBus, clock: Clock) -> AsyncIterator[None]:
    async with (
        plane.purse.running(),
        plane.orchestrator.running(),
        care_for_lost_workers(plane.agents, plane.orchestrator, bus, clock),
        plane.jobs.running(),
    ):
        yield


async def _parts_ready(db: Database, bus: JetStreamBus) -> dict[str, bool]:
    return {"database": await db.answers(), "bus": bus.connected}


@asynccontextmanager
async def _trail(audit: SqlAudit, bus: JetStreamBus, clock: Clock, ids: UlidSource) -> AsyncIterator[Trail]:
    sequencer = Sequencer(audit, clock)
    trail = Trail(audit, clock=clock, new_id=ids.ulid, wake=sequencer.wake)
    await ToolRecords(trail, sequencer.wake).listen(bus)
    async with sequencer.running():
        yield trail


def _orchestrator(
    settings: Settings,
    store: SqlEventStore,
    bus: JetStreamBus,
    registry: WorkflowRegistry,
    clock: Clock,
    ids: UlidSource,
    ownership: Ownership,
    claims: ClaimCheck,
    bounds: Bounds,
    agents: LiveAgents,
) -> Orchestrator:
    return Orchestrator(
        store=store,
        bus=bus,
        program_of=registry.program,
        resolve=registry.resolve,
        clock=clock,
        ids=ids,
        chance=random.random,
        shards=settings.shards,
        ownership=ownership,
        resend_after_s=settings.resend_after_s,
        environment=allowed_environment(settings),
        claims=claims,
        bounds=bounds,
        pools=agents.pools,
        hears=Hearing(lambda: bus.connected, clock),
        holding=agents.holding,
    )


def _setup(settings: Settings, db: Database) -> Setup:
    return Setup(
        version=version("agentflow"),
        mode=settings.mode,
        store=db.engine,
        encrypted_fields=settings.key_ring() is not None,
        store_tls=settings.db_tls,
        bus_local=settings.bus_is_local(),
        bus_tls=settings.nats_tls() is not None,
        tls=settings.tls_cert_file is not None,
        client_certificates=settings.tls_client_ca_file is not None,
        oidc=settings.oidc_issuer is not None,
    )


def _purge(settings: Settings, db: Database, artifacts: KeptArtifacts, clock: Clock) -> Callable[[], Awaitable[object]]:
    environment = inherited_environment() | as_environment(settings)
    return daily_purge(db, retention_job(settings, db, artifacts), clock, environment)


def _budgets(db: Database, bus: JetStreamBus, clock: Clock, ids: UlidSource, trail: Trail) -> tuple[BudgetBook, Purse]:
    store = SqlBudgets(db)
    purse = Purse(store, bus=bus, clock=clock, new_id=ids.ulid, on_record=trail.written_beside)
    return BudgetBook(store, bus=bus, clock=clock, apply=purse.look), purse


def _estimates(
    db: Database,
    registry: WorkflowRegistry,
    tools: ToolRegistry,
    executions: SqlExecutions,
    record: SqlEventStore,
) -> Estimates:
    costs = SqlCosts(db)
    return Estimates(registry=registry, tools=tools, executions=executions, record=record, observations=costs)


def _bounds(settings: Settings, room: SqlRoom, at_once: Callable[[TenantId], int | None], purse: Purse) -> Bounds:
    return Bounds(
        room=room,
        tenant_max=lambda tenant: at_once(tenant) or settings.tenant_executions_max or None,
        budgets=purse,
        open_max=settings.open_executions_max,
        window=settings.dispatch_window,
    )


def _ownership(settings: Settings, db: Database, bus: JetStreamBus, clock: Clock, ids: UlidSource) -> Ownership:
    return Ownership(
        leases=SqlShardLeases(db),
        bus=bus,
        clock=clock,
        replica=ids.server(),
        shards=settings.shards,
        lease_s=settings.lease_s,
        alone=db.engine == "sqlite",
    )


async def _agents(settings: Settings, db: Database, bus: JetStreamBus, clock: Clock, pools: Pools) -> LiveAgents:
    """Who is there by their heartbeats, and what those of them remember that remember anything."""
    agents = LiveAgents(clock, lost_after_s=settings.worker_lost_s, pools=pools)
    await bus.listen_pools(subjects.HEARTBEATS, agents.heard)
    states = AgentStates(SqlAgentStates(db), clock=clock, is_lost=agents.is_lost, ask_release=partial(ask_release, bus))
    await bus.answer_pools(subjects.AGENT_STATES, states.answer, group="control-planes")
    return agents


async def ask_release(bus: JetStreamBus, pool: str, ref: StateRef) -> None:
    order = ReleaseState(ref.tenant, ref.agent, ref.instance)
    await bus.broadcast(subjects.of_pool(subjects.WORKER_CONTROL, pool), msgspec.json.encode(order))
