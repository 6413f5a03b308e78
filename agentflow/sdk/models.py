"""What the API answers, as values. Fields a newer server adds are ignored; moments are RFC 3339 text."""

from typing import Any

import msgspec

from agentflow.contracts.step import StepFault
from agentflow.errors import Problem


class WorkflowSummary(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    name: str
    version: str
    digest: str
    planner: str
    created_at: str


class PushedWorkflow(WorkflowSummary, frozen=True, kw_only=True):
    created: bool = True  # False when exactly this content was registered before
    warnings: list[Problem] = []  # what may be wrong; the workflow is registered all the same


class Workflow(WorkflowSummary, frozen=True, kw_only=True):
    definition: dict[str, Any]
    source: str


class WorkflowList(msgspec.Struct, frozen=True):
    items: list[WorkflowSummary]
    total_count: int
    next_cursor: str | None = None


class ToolSummary(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    name: str
    version: str
    digest: str
    type: str
    effect: str
    permissions: list[str] = []
    description: str = ""
    builtin: bool = False
    created_at: str | None = None


class PushedTool(ToolSummary, frozen=True, kw_only=True):
    created: bool = True  # False when exactly this content was registered before


class Tool(ToolSummary, frozen=True, kw_only=True):
    definition: dict[str, Any]


class ToolList(msgspec.Struct, frozen=True):
    items: list[ToolSummary]
    total_count: int
    next_cursor: str | None = None


class TestedTool(msgspec.Struct, frozen=True, kw_only=True):
    """What a call outside of any execution gave: an output, or a fault."""

    tool: str
    version: str
    digest: str
    output: Any = None
    fault: StepFault | None = None
    logs: str = ""
    duration_ms: int = 0
    backend: str = ""
    isolation: str = ""
    profile_hash: str = ""
    worker: str = ""


class StartedExecution(msgspec.Struct, frozen=True):
    """What `execute` answers. Without waiting, or when the wait was too short, `status` is still `running`."""

    execution_id: str
    trace_id: str
    status: str
    output: Any = None
    error: StepFault | None = None
    started_at: str | None = None
    ended_at: str | None = None


class ListedWorkflow(msgspec.Struct, frozen=True):
    id: str
    name: str
    version: str


class ExecutionSummary(msgspec.Struct, frozen=True):
    id: str
    workflow: ListedWorkflow
    status: str
    started_at: str
    ended_at: str | None
    trace_id: str


class ExecutionList(msgspec.Struct, frozen=True):
    items: list[ExecutionSummary]
    total_count: int | None
    next_cursor: str | None = None


class WaitingTask(msgspec.Struct, frozen=True):
    """What an execution has put before people, and nobody has answered yet."""

    execution: str
    path: str
    workflow: str
    opened_at: str
    task: dict[str, Any]


class TaskList(msgspec.Struct, frozen=True):
    items: list[WaitingTask]
    total_count: int | None
    next_cursor: str | None = None


class PinnedWorkflow(msgspec.Struct, frozen=True):
    id: str
    name: str
    version: str
    digest: str


class StepInFlight(msgspec.Struct, frozen=True):
    path: str
    name: str
    agent: str
    attempt: int
    since: str
    tool: str | None = None


class StepWaiting(msgspec.Struct, frozen=True):
    path: str
    name: str
    attempt: int
    retry_at: str


class Execution(msgspec.Struct, frozen=True):
    id: str
    workflow: PinnedWorkflow
    status: str
    input: Any
    output: Any
    error: StepFault | None
    started_at: str
    ended_at: str | None
    trace_id: str
    version: int
    in_flight: list[StepInFlight] = []
    waiting: list[StepWaiting] = []
    timers: list[dict[str, Any]] = []
    signals: list[dict[str, Any]] = []
    children: list[dict[str, Any]] = []
    tasks: list[dict[str, Any]] = []
    priority: int = 0
    queue: dict[str, Any] | None = None  # what it waits for before it begins
    parent: dict[str, Any] | None = None
    forked: dict[str, Any] | None = None  # whose beginning it has
    failed_at: str | None = None  # the path of what it could not go on from
    breakpoints: list[str] = []
    stopped_at: str | None = None  # the breakpoint it is paused at
    held_by: str | None = None  # the used-up budget it is paused for; it goes on by itself
    vars: dict[str, Any] = {}
    outputs: dict[str, Any] = {}


class Tick(msgspec.Struct, frozen=True):
    """What a tick of a behaviour tree changed, or how all of it stood after one."""

    version: int
    at: str
    nodes: dict[str, str]
    vars: dict[str, Any]


class TickList(msgspec.Struct, frozen=True):
    items: list[Tick]
    total_count: int


class Evaluation(msgspec.Struct, frozen=True):
    """One expression that an execution evaluated."""

    version: int
    at: str
    expression: str
    language: str
    values: dict[str, Any]
    result: Any
    error: StepFault | None


class EvaluationList(msgspec.Struct, frozen=True):
    items: list[Evaluation]


class ScheduleFire(msgspec.Struct, frozen=True):
    at: str
    outcome: str  # started, skipped or failed
    execution: str | None = None
    reason: str = ""


class Schedule(msgspec.Struct, frozen=True):
    id: str
    name: str
    workflow: str
    input: Any
    status: str  # active, paused or over
    timezone: str
    overlap: str
    created_at: str
    cron: str | None = None
    every: str | None = None
    jitter: str = "0s"
    catch_up: str = "0s"
    starts_at: str | None = None
    ends_at: str | None = None
    next_at: str | None = None
    last_at: str | None = None
    fired: int = 0
    skipped: int = 0
    missed: int = 0
    waiting: list[str] = []
    recent: list[ScheduleFire] = []


class ScheduleList(msgspec.Struct, frozen=True):
    items: list[Schedule]


class ExecutionEvent(msgspec.Struct, frozen=True):
    version: int
    type: str
    at: str
    data: dict[str, Any]


class LiveEvent(msgspec.Struct, frozen=True):
    """An event in the feed. `seq` is its number there: what to go on from."""

    seq: int
    execution_id: str
    workflow: str
    version: int
    type: str
    at: str
    data: dict[str, Any]
    large: list[dict[str, Any]] = []  # values too large for a feed: empty in `data`, whole in `history`


class Step(msgspec.Struct, frozen=True):
    path: str
    number: int
    name: str
    agent: str
    status: str
    attempt: int
    scheduled_at: str
    tool: str | None = None
    worker: str | None = None
    fault: str | None = None
    ended_at: str | None = None


class StepList(msgspec.Struct, frozen=True):
    items: list[Step]


class Agent(msgspec.Struct, frozen=True):
    name: str
    health: str
    workers: int
    running: int
    shared: bool


class AgentList(msgspec.Struct, frozen=True):
    items: list[Agent]
    total_count: int
    next_cursor: str | None = None


class AgentInstance(msgspec.Struct, frozen=True):
    """A worker that answers for an agent."""

    worker: str
    running: int
    health: str
    started_at: str
    heard_s_ago: float


class AgentDetail(Agent, frozen=True, kw_only=True):
    instances: list[AgentInstance]


class AuthStatus(msgspec.Struct, frozen=True):
    required: bool
    oidc: bool
    client_certificates: bool


class StoreStatus(msgspec.Struct, frozen=True):
    engine: str
    encrypted_fields: bool
    tls: bool
    ready: bool


class BusStatus(msgspec.Struct, frozen=True):
    kind: str
    local: bool
    tls: bool
    ready: bool


class Isolation(msgspec.Struct, frozen=True):
    """The weakest fence that so many workers put around a tool."""

    sandbox: str
    workers: int


class PlatformAsked(msgspec.Struct, frozen=True):
    """How many executions of how many tenants were paused, or went on."""

    executions: int
    tenants: int


class DeploymentStatus(msgspec.Struct, frozen=True):
    version: str
    mode: str
    auth: AuthStatus
    store: StoreStatus
    bus: BusStatus
    tls: bool
    isolation: list[Isolation]


class CostLine(msgspec.Struct, frozen=True):
    name: str
    dollars: str  # exact; without those of the `cost_unknown` observations that have no known price
    cost_unknown: int
    observations: int
    tokens: dict[str, int]  # by kinds that do not overlap


class DollarFigure(msgspec.Struct, frozen=True):
    expected: str | None  # exact; None where nobody can tell
    upper: str | None  # not exceeded in 19 of 20 cases, or the bound of the plan
    observations: int  # that it rests on


class Figure(msgspec.Struct, frozen=True):
    expected: float | None
    upper: float | None
    observations: int


class StepEstimate(msgspec.Struct, frozen=True):
    """`dollars`, `tokens` and `duration_ms` are of one run of the step."""

    name: str
    agent: str
    tool: str | None
    basis: str  # of the dollars: step, agent, tool, declared or none
    runs: Figure
    dollars: DollarFigure
    tokens: Figure
    duration_ms: Figure


class Unpriced(msgspec.Struct, frozen=True):
    name: str
    reason: str


class Estimate(msgspec.Struct, frozen=True):
    """What one execution will probably cost, without what is `unknown`."""

    plan: str
    workflow: ListedWorkflow
    executions: int  # completed ones that it is calibrated by
    dollars: DollarFigure
    tokens: Figure
    steps_run: Figure
    duration_ms: Figure
    steps: list[StepEstimate]
    unknown: list[Unpriced]


class CostReport(msgspec.Struct, frozen=True, rename={"from_": "from"}):
    scope: str
    period: str
    from_: str | None
    until: str | None
    items: list[CostLine]


class EventPage(msgspec.Struct, frozen=True):
    items: list[ExecutionEvent]
    ended: bool


class ProblemDetails(msgspec.Struct, frozen=True):
    """RFC 9457, with our own members: the error's code, what to do, and each fault with its place."""

    title: str
    status: int
    code: str
    detail: str = ""
    hint: str = ""
    problems: list[Problem] = []


class Divergence(msgspec.Struct, frozen=True, kw_only=True):
    """The first place where deciding again leads elsewhere."""

    version: int
    path: str
    expected: str | None
    got: str | None
    fields: list[str] = []
    reason: str = ""
    expected_data: dict[str, Any] | None = None
    got_data: dict[str, Any] | None = None


class Replay(msgspec.Struct, frozen=True, kw_only=True):
    """A recorded execution, decided again."""

    execution_id: str
    workflow: str
    against: str | None
    identical: bool
    events: int
    agreed: int
    digest: str
    divergence: Divergence | None = None


class Replays(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a job that replayed many."""

    replayed: int
    identical: int
    diverged: int
    items: list[Replay]


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A long operation: how far it is, and once it is over what came of it."""

    id: str
    kind: str
    status: str
    done: int
    total: int
    result: Any = None
    error: str | None = None
    created_at: str
    updated_at: str

    @property
    def is_over(self) -> bool:
        return self.status in ("succeeded", "failed")


class DeployedWorkflow(msgspec.Struct, frozen=True):
    id: str
    name: str
    version: str


class Deployed(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a job that deployed a version; without a `workflow` nothing was registered."""

    registered: bool
    created: bool
    workflow: DeployedWorkflow | None
    replays: Replays


class Deployment(msgspec.Struct, frozen=True, kw_only=True):
    """How a version came to be registered."""

    workflow_id: str
    name: str
    version: str
    by: str
    replayed: int
    diverged: int
    reason: str
    at: str


class DeploymentList(msgspec.Struct, frozen=True):
    items: list[Deployment]
    next_cursor: str | None = None


class Misfit(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is in the way of a move: at a node, or under a key."""

    node: str
    key: str
    reason: str
    can_be_mapped: bool


class MoveVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """Whether an execution could go on by another version: `compatible`, `needs_mapping` or `refused`."""

    execution_id: str
    to: str
    verdict: str
    misfits: list[Misfit]
    vars: dict[str, Any]


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """Something that took time: an execution, a step, an attempt, a wait, a tool call."""

    span_id: str
    parent_span_id: str | None
    kind: str
    name: str
    execution_id: str
    started_at: str
    ended_at: str | None
    duration_ms: int | None
    status: str
    attributes: dict[str, Any] = {}


class TraceView(msgspec.Struct, frozen=True, kw_only=True):
    trace_id: str
    items: list[Span]
    truncated: bool = False
