"""The shapes of answers, for the OpenAPI document. Nothing is validated with them when an answer is sent."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Moment = Field(json_schema_extra={"format": "date-time"}, examples=["2026-11-18T06:00:00.123Z"])
ExecutionStatus = Literal["queued", "running", "paused", "completed", "failed", "cancelled"]


class Shape(BaseModel):
    model_config = ConfigDict(extra="forbid")


class ListShape(Shape):
    next_cursor: str | None = Field(description="For the next page; null on the last one.")
    total_count: int | None = Field(description="How many there are; null where only looking through all would tell.")
    total_count_is_minimum: bool = Field(default=False, description="There are more than counted.")


class Fault(Shape):
    code: str
    message: str
    retryable: bool = False


class PlacedProblem(Shape):
    message: str
    hint: str = ""
    line: int | None = None
    column: int | None = None
    path: str = ""


class WorkflowSummary(Shape):
    id: str = Field(examples=["wf_01KADE9R5T7M2X4C6V8B0N1Q3W"])
    name: str = Field(examples=["support"])
    version: str = Field(examples=["1.0.0"])
    digest: str
    planner: str = Field(examples=["fsm"])
    created_at: str = Moment


class PushedWorkflow(WorkflowSummary):
    warnings: list[PlacedProblem] = Field(default=[], description="What may be wrong; it is registered all the same.")


class Workflow(WorkflowSummary):
    definition: dict[str, Any]
    source: str = Field(description="The definition as it was sent.")


class WorkflowList(ListShape):
    items: list[WorkflowSummary]


class Started(Shape):
    execution_id: str = Field(examples=["exec_01KADE9R5T7M2X4C6V8B0N1Q3W"])
    job_id: str = Field(description="The same id: what to subscribe to for its events.")
    trace_id: str
    status: ExecutionStatus


class Result(Started):
    output: Any = None
    error: Fault | None
    started_at: str = Moment
    ended_at: str | None = Moment


class ListedWorkflow(Shape):
    id: str
    name: str
    version: str


class PinnedWorkflow(ListedWorkflow):
    digest: str
    tools: dict[str, str] = Field(default={}, description="Digests of the registered tools it names.")


class ExecutionSummary(Shape):
    id: str
    workflow: ListedWorkflow
    status: ExecutionStatus
    started_at: str = Moment
    ended_at: str | None = Moment
    trace_id: str


class ExecutionList(ListShape):
    items: list[ExecutionSummary]


class StepInFlight(Shape):
    path: str
    name: str
    agent: str
    tool: str | None
    attempt: int
    since: str = Moment


class StepWaiting(Shape):
    path: str
    name: str
    attempt: int
    retry_at: str = Moment


class Timer(Shape):
    key: str
    due_at: str = Moment


class AwaitedSignal(Shape):
    key: str
    name: str


class Child(Shape):
    path: str
    workflow: str


class Task(BaseModel):
    """More members are the task's own: title, form and what else the workflow gives."""

    path: str


class Parent(Shape):
    execution: str
    path: str


class Queue(Shape):
    start_at: str | None = Moment
    workflow_max: int | None = Field(description="As many executions of its workflow may be under way.")
    tenant: bool = Field(description="It counts among those that its tenant may have under way.")


class Forked(Shape):
    execution: str
    version: int = Field(description="How many events of the other one come before.")
    path: str
    going: Literal["from", "after"]
    edited: list[Literal["input", "output", "vars"]] = []


class Execution(Shape):
    id: str
    workflow: PinnedWorkflow
    trace_id: str
    version: int = Field(description="How many events it has; also its ETag.")
    input: Any
    status: ExecutionStatus
    output: Any
    error: Fault | None
    started_at: str = Moment
    ended_at: str | None = Moment
    in_flight: list[StepInFlight]
    waiting: list[StepWaiting]
    timers: list[Timer]
    signals: list[AwaitedSignal]
    children: list[Child]
    tasks: list[Task]
    priority: int
    queue: Queue | None = Field(description="What a queued execution waits for.")
    parent: Parent | None
    forked: Forked | None = Field(description="Whose beginning it has.")
    failed_at: str | None = Field(description="The path of what a failed execution could not go on from.")
    breakpoints: list[str] = Field(description="Places before which it stops.")
    stopped_at: str | None = Field(description="The breakpoint it is paused at.")
    held_by: str | None = Field(description="The used-up budget it is paused for; it goes on by itself.")
    vars: dict[str, Any]
    outputs: dict[str, Any]


class Tick(Shape):
    version: int = Field(description="That of the event which holds the tick.")
    at: str = Moment
    nodes: dict[str, str] = Field(description="The status of nodes by path.", examples=[{"tree/0/fix": "running"}])
    vars: dict[str, Any]


class TickList(Shape):
    items: list[Tick]
    total_count: int


class Evaluation(Shape):
    version: int = Field(description="That of the event which made the workflow look.")
    at: str = Moment
    expression: str = Field(examples=["output.confidence >= 0.8"])
    language: str = Field(examples=["cel"])
    values: dict[str, Any] = Field(description="What it read, by name.")
    result: Any
    error: Fault | None


class EvaluationList(Shape):
    items: list[Evaluation]


class Divergence(Shape):
    """The first place where deciding again leads elsewhere."""

    version: int = Field(description="That of the event at which it differs.")
    path: str = Field(description="The step, timer or task it is about; empty for the execution as a whole.")
    expected: str | None = Field(description="What is recorded; null where the record ends.")
    got: str | None = Field(description="What was decided; null where nothing follows.")
    fields: list[str] = Field(description="Where both are of one kind: what differs.", examples=[["timeout_ms"]])
    reason: str
    expected_data: dict[str, Any] | None = Field(default=None, description="Only of an execution replayed alone.")
    got_data: dict[str, Any] | None = None


class Replay(Shape):
    execution_id: str
    workflow: str = Field(examples=["support@1.0.0"])
    against: str | None = Field(examples=["support@1.1.0"], description="Null where it was decided by its own version.")
    identical: bool
    events: int = Field(description="How many are recorded, as far as they were read.")
    agreed: int = Field(description="How many were decided again as they are recorded.")
    digest: str = Field(
        description="SHA-256 over the decisions that agreed, each event with the digest of those before it."
    )
    divergence: Divergence | None


class Job(Shape):
    id: str = Field(examples=["job_01KADE9R5T7M2X4C6V8B0N1Q3W"])
    job_id: str
    kind: str = Field(examples=["replay"])
    status: Literal["queued", "running", "succeeded", "failed"]
    done: int
    total: int = Field(description="0 while that is not known.")
    result: Any = Field(description="Once it has succeeded; its shape is the kind's own.")
    error: str | None
    created_at: str = Moment
    updated_at: str = Moment


class Deployment(Shape):
    workflow_id: str
    name: str
    version: str
    by: str = Field(description="Who asked for it.")
    replayed: int = Field(description="On so many executions it was tried.")
    diverged: int = Field(description="So many of them would have gone another way.")
    reason: str = Field(description="Why that was accepted.")
    at: str = Moment


class DeploymentList(ListShape):
    items: list[Deployment]


class Misfit(Shape):
    """One thing that is in the way of a move."""

    node: str = Field(description="Where the execution stands; empty where it is about a key.", examples=["review"])
    key: str = Field(examples=["vars.total"])
    reason: str
    can_be_mapped: bool


class MoveVerdict(Shape):
    execution_id: str
    to: str = Field(examples=["1.1.0"])
    verdict: Literal["compatible", "needs_mapping", "refused"]
    misfits: list[Misfit]
    vars: dict[str, Any] = Field(description="Variables that would be set by the move.")


class Span(Shape):
    span_id: str = Field(pattern="^[0-9a-f]{16}$", examples=["b7ad6b7169203331"])
    parent_span_id: str | None
    kind: Literal["execution", "step", "attempt", "timer", "signal", "child", "task", "tool_call"]
    name: str = Field(examples=["classify"])
    execution_id: str
    started_at: str = Moment
    ended_at: str | None = Field(description="Null while it is under way.")
    duration_ms: int | None
    status: Literal["unset", "ok", "error"]
    attributes: dict[str, Any]


class TraceView(Shape):
    trace_id: str
    items: list[Span]
    truncated: bool = Field(description="There is more than one look may take.")


class Event(Shape):
    version: int
    type: str = Field(examples=["step.succeeded.v1"])
    at: str = Moment
    data: dict[str, Any]


class EventPage(Shape):
    items: list[Event]
    ended: bool = Field(description="No event will follow the last one here.")


class WaitingTask(Shape):
    execution: str
    path: str = Field(description="Answer it at /api/v1/executions/{execution}/tasks/{path}/answer.")
    workflow: str
    opened_at: str = Moment
    task: dict[str, Any] = Field(description="Title, instructions, form and assignees, as the workflow gave them.")


class TaskList(ListShape):
    items: list[WaitingTask]


class PlanStep(Shape):
    path: str
    number: int = Field(description="The version of the event that first asked for it.")
    name: str
    agent: str
    tool: str | None
    status: Literal["scheduled", "waiting", "succeeded", "failed", "halted"]
    attempt: int
    worker: str | None
    fault: str | None
    scheduled_at: str = Moment
    ended_at: str | None = Moment


class StepPage(Shape):
    items: list[PlanStep]


class PlannedStep(Shape):
    name: str
    agent: str
    timeout_ms: int
    attempts: int
    tool: str | None = None


class PlanNode(Shape):
    id: str
    kind: str
    label: str
    step: PlannedStep | None = None


class PlanEdge(Shape):
    source: str
    target: str
    kind: Literal["next", "error", "child"]
    label: str = ""


class StepCount(Shape):
    name: str
    min: int
    max: int | None = Field(description="Null: no bound follows from the definition.")


class PlanShape(Shape):
    min: int
    max: int | None
    steps: list[StepCount]


class Plan(Shape):
    """What a version will do, as far as its definition decides it."""

    id: str = Field(description="The same for every version with the same plan.")
    workflow: ListedWorkflow
    planner: str
    nodes: list[PlanNode]
    edges: list[PlanEdge]
    shape: PlanShape = Field(description="How many steps an execution takes, at least and at most.")


class ToolSummary(Shape):
    id: str = Field(examples=["kb.search@1.0.0"])
    name: str
    version: str
    digest: str
    description: str
    type: str
    permissions: list[str]
    effect: str
    builtin: bool
    created_at: str | None = Moment


class Tool(ToolSummary):
    definition: dict[str, Any]


class ToolList(ListShape):
    items: list[ToolSummary]


class TestedTool(Shape):
    tool: str
    version: str
    digest: str
    output: Any = None
    fault: Fault | None = None
    logs: str = ""
    duration_ms: int = 0
    backend: str = ""
    isolation: str = ""
    profile_hash: str = ""
    worker: str = ""


class Agent(Shape):
    name: str
    health: Literal["ok", "draining"]
    workers: int = Field(description="That take steps.")
    running: int = Field(description="Steps running on them.")
    shared: bool = Field(description="Its workers serve other tenants too.")


class AgentInstance(Shape):
    worker: str
    running: int
    health: Literal["ok", "draining"]
    started_at: str = Moment
    heard_s_ago: float


class AgentDetail(Agent):
    instances: list[AgentInstance]


class AgentList(ListShape):
    items: list[Agent]


class Fired(Shape):
    at: str = Moment
    execution: str | None
    reason: str
    outcome: str


class Schedule(Shape):
    id: str
    name: str
    workflow: str
    input: Any
    cron: str | None
    every: str | None
    timezone: str
    jitter: str
    overlap: Literal["skip", "queue", "allow"]
    catch_up: str
    starts_at: str | None = Moment
    ends_at: str | None = Moment
    status: Literal["active", "paused", "over"]
    next_at: str | None = Moment
    last_at: str | None = Moment
    created_at: str = Moment
    fired: int
    skipped: int
    missed: int
    waiting: list[str]
    recent: list[Fired]


class ScheduleList(ListShape):
    items: list[Schedule]


class Triggered(Shape):
    execution_id: str


class Health(Shape):
    status: Literal["ok"]


class Readiness(Shape):
    status: Literal["ok", "unavailable"]
    database: bool
    bus: bool
