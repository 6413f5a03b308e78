"""A worker that is killed at a chosen place between taking a step and acking it, and what becomes of the step's call.

Mailbox, reporter, tool agent, claims and records are the worker's own, deciding, dispatching and granting the control
plane's own; only what they stand on is made here: a bus, a sandbox that calls a `Provider`, and death, which is that
nothing a worker does any more reaches anybody. `python -m tests.simulation.killed_calls 1000` has so many runs for
each place and each kind of tool, which is how UA-6 b is shown; `test_killed_calls` has a few of each.
"""

import asyncio
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

import msgspec
import structlog

from agentflow.bus import subjects
from agentflow.clock import SystemClock
from agentflow.contracts.message import Message, decode, encode
from agentflow.contracts.pools import SHARED, Pools
from agentflow.contracts.step import TOOLS_AGENT, WORKER_LOST, StepFault, StepRequest, StepResult
from agentflow.execution import messages as m
from agentflow.execution.commands import DispatchStep
from agentflow.execution.decide import decide
from agentflow.execution.events import Event, Retry, StepClaimed, StepSucceeded, WorkflowRef
from agentflow.execution.messages import ExecutionMessage, Stamp, StepReported
from agentflow.execution.program import Fail, Finish, Intents, Outcome, RunStep, RunView, StepOutcome
from agentflow.execution.state import ExecutionState
from agentflow.ids import DEFAULT_TENANT, ExecutionId, MessageId, TenantId, TraceId, UlidSource, WorkerId, WorkflowId
from agentflow.ports import BusUnavailable, Consumer
from control_plane.orchestrator.claiming import Claiming
from control_plane.orchestrator.outbound import Outbound
from sandbox.policy import ToolNeeds
from sandbox.tool_call import SandboxOutcome, ToolCall
from worker.mailbox import Mailbox
from worker.reporter import Reporter
from worker.tools.agent import ToolsAgent
from worker.tools.claiming import CallClaims
from worker.tools.hosting import HostedTool
from worker.tools.records import ToolRecords

# Where a worker may die, in the order in which it comes to them. Only claimed calls come to those about the claim.
PLACES = (
    "a step is delivered",
    "its agent is called",
    "its tool is found",
    "its claim has a name",
    "its claim leaves",
    "its claim arrives",
    "its claim is committed",
    "its claim is granted",
    "who has a say is asked",
    "the sandbox is opened",
    "the call begins",
    "the request leaves",
    "the provider hears it",
    "the provider has done it",
    "the provider has answered",
    "the call ends",
    "the record is noted",
    "the record is stored for people",
    "the record is stored for auditors",
    "the agent has answered",
    "the result is sealed",
    "the result leaves",
    "the result is stored",
    "the result is confirmed",
    "the step is acked",
)
Kind = Literal["keyed", "unkeyed", "looking"]
KINDS: tuple[Kind, ...] = ("keyed", "unkeyed", "looking")
_CLAIMING = frozenset(place for place in PLACES if "claim" in place)

WORKFLOW = WorkflowRef(WorkflowId("wf_1"), "paying", "1.0.0", "d" * 64)


class Killed(BaseException):
    """What a dead process does next."""


class Paying:
    """One step, with a rule that would repeat it gladly."""

    def __init__(self, tool: str) -> None:
        self._tool = tool

    def begin(self, run: RunView) -> Intents:
        retry = Retry(max_attempts=5, initial_ms=0, jitter=False)
        return (RunStep("pay", "pay", TOOLS_AGENT, self._tool, {"amount": 7}, 60_000, retry),)

    def advance(self, run: RunView, outcome: Outcome) -> Intents:
        assert isinstance(outcome, StepOutcome)
        return (Finish(outcome.output),) if outcome.fault is None else (Fail(outcome.fault),)


class Provider:
    """Does what it is asked, every time; of what carries a key it has seen, it gives the first answer again."""

    def __init__(self, honours_keys: bool) -> None:
        self._honours_keys = honours_keys
        self.heard: list[str] = []  # the key of each request
        self.done: Counter[str] = Counter()

    def pay(self, key: str) -> dict[str, Any]:
        self.heard.append(key)
        if not (self._honours_keys and self.done[key]):
            self.done[key] += 1
        return {"receipt": key}


class Plane:
    """The control plane of one execution: what is in `events` is durable, and nothing else is."""

    def __init__(self, kind: Kind, ids: UlidSource, chance: random.Random) -> None:
        self.state = ExecutionState()
        self.events: list[Event] = []
        self.mailbox: list[Message] = []
        self.attempts: list[int] = []
        self._program = Paying(kind)
        self._now = 1_000
        self._chance = chance
        self._outbound = Outbound(
            bus=self,  # type: ignore[arg-type]  # only publishes here
            clock=SystemClock(),
            ids=ids,
            shards=1,
            pools=Pools([TOOLS_AGENT]),
            replica="plane",
            unsendable=lambda *_: None,
        )
        self.claiming = Claiming(committed=self._committed, stamp=self.stamp)

    def stamp(self) -> Stamp:
        self._now += 1
        return Stamp(self._now, self._chance.random())

    async def hear(self, message: ExecutionMessage) -> None:
        decision = decide(self.state, message, self._program)
        self.events += decision.events
        self.state = decision.state
        for command in decision.commands:
            if isinstance(command, DispatchStep):
                self.attempts.append(command.attempt)
                await self._outbound.send_step(self.state, command)

    async def publish(self, subject: str, message: Message, *, dedup_id: str, confirm: bool) -> None:
        self.mailbox.append(decode(encode(message)))

    async def _committed(self, _: TenantId, __: ExecutionId, message: ExecutionMessage) -> ExecutionState:
        await self.hear(message)
        return self.state


class Line:
    """The bus as one worker sees it; and its life, which ends at the places it is told."""

    def __init__(self, plane: Plane, provider: Provider, dies_at: str | None) -> None:
        self._plane = plane
        self._provider = provider
        self._dies_at = dies_at
        self._handler: Callable[[Any], None] | None = None
        self.dead = False
        self.over = asyncio.Event()
        self.results: list[StepResult] = []
        self.killed = False

    def reach(self, place: str) -> None:
        if self.dead:
            raise Killed
        if place == self._dies_at:
            self.dead = self.killed = True
            self.over.set()
            raise Killed

    # What a worker asks of the bus.

    async def subscribe(self, _: Consumer, handler: Callable[[Any], None]) -> None:
        self._handler = handler

    async def request(self, subject: str, question: bytes, *, within_s: float) -> bytes:
        if subject.startswith(subjects.direct_results("")):  # the way through the stream has more places to die at
            raise BusUnavailable("no control plane takes results itself")
        self.reach("its claim leaves")
        self.reach("its claim arrives")
        answer = await self._plane.claiming.answer(SHARED, question)
        self.reach("its claim is committed")
        return answer

    async def publish(self, subject: str, message: Message, *, dedup_id: str, confirm: bool) -> None:
        if subject == subjects.of_pool(subjects.TOOL_CALLS, SHARED):
            self.reach("the record is stored for people")
        elif subject == subjects.of_pool(subjects.TOOL_AUDIT, SHARED):
            self.reach("the record is stored for auditors")
        else:
            self.reach("the result leaves")
            self.results.append(message.read(StepResult))
            self.reach("the result is stored")

    def deliver(self, message: Message) -> None:
        self.reach("a step is delivered")
        assert self._handler is not None
        self._handler(_Delivery(message, self))

    # What its tools stand on.

    deployed = "process"
    isolation: Any = "full"

    async def of(self, _: str) -> "Line":
        self.reach("the sandbox is opened")
        return self

    async def run(self, call: ToolCall, _: Any) -> SandboxOutcome:
        self.reach("the call begins")
        if call.call == "tills:paid":
            done = self._provider.done[call.input["effect_key"]] > 0
            output: Any = {"done": done, "output": {"receipt": "found"}}
        else:
            self.reach("the request leaves")
            self.reach("the provider hears it")
            output = self._provider.pay(call.effect_key)
            self.reach("the provider has done it")
            self.reach("the provider has answered")
        self.reach("the call ends")
        return SandboxOutcome(isolation="full", profile_hash="", duration_s=0.0, output=output)

    async def close(self) -> None:
        """Nothing stays open."""

    def says(self, tenant: str, workflow: str) -> tuple[()]:
        self.reach("who has a say is asked")
        return ()


class _Delivery:
    def __init__(self, message: Message, line: Line) -> None:
        self.message = message
        self.deliveries = 1
        self._line = line

    def ack(self) -> None:
        self._line.reach("the result is confirmed")
        self._line.over.set()
        self._line.reach("the step is acked")

    def nak(self, delay_s: float = 0.0) -> None:
        raise AssertionError("nothing goes wrong here but death")

    def working(self) -> None:
        """Heard."""


class _Tools(Mapping[str, HostedTool]):
    def __init__(self, line: Line) -> None:
        self._line = line

    def __getitem__(self, name: str) -> HostedTool:
        self._line.reach("its tool is found")
        return HostedTool(
            name=name,
            version="1.0.0",
            digest="",
            call="tills:pay",
            path=(),
            needs=ToolNeeds(name),
            folder="/",
            effect="idempotent" if name == "keyed" else "at_most_once",
            reconcile="tills:paid" if name == "looking" else None,
        )

    def __iter__(self) -> Iterator[str]:
        return iter(KINDS)

    def __len__(self) -> int:
        return len(KINDS)


class _Authorities:
    def __init__(self, line: Line) -> None:
        self.of = line.says


class _Ids(UlidSource):
    def __init__(self, line: Line) -> None:
        super().__init__(SystemClock().now_ms)
        self._line = line

    def message(self) -> MessageId:
        self._line.reach("the result is sealed")
        return super().message()


class _Records(ToolRecords):
    def __init__(self, line: Line, **parts: Any) -> None:
        super().__init__(**parts)
        self._line = line

    def note(self, record: Any) -> None:
        self._line.reach("the record is noted")
        super().note(record)


class _Watched:
    """The agent, with a place before it and one behind."""

    def __init__(self, agent: ToolsAgent, claims: CallClaims, line: Line) -> None:
        self._agent = agent
        self._line = line
        granting = claims.take

        async def take(*args: Any, **how: Any) -> None:
            await granting(*args, **how)
            line.reach("its claim is granted")

        claims.take = take  # type: ignore[method-assign]

    async def run(self, request: StepRequest, context: Any) -> Any:
        self._line.reach("its agent is called")
        output = await self._agent.run(request, context)
        self._line.reach("the agent has answered")
        return output

    async def close(self) -> None:
        """It dies with its worker."""


async def works(line: Line, ids: UlidSource, message: Message) -> None:
    """One worker's life with one step: until the step is acked, or it is dead."""
    clock = SystemClock()
    worker = ids.worker()

    def name() -> str:
        line.reach("its claim has a name")
        return ids.ulid()

    claims = CallClaims(worker=worker, pool=SHARED, new_id=name, clock=clock)
    records = _Records(line, ids=ids, clock=clock, worker=worker, pool=SHARED)
    nothing: Any = None
    agent = ToolsAgent(
        _Tools(line),
        sandboxes=line,  # type: ignore[arg-type]
        authorities=_Authorities(line),
        egress=nothing,
        records=records,
        definitions=nothing,
        claims=claims,
        registered=nothing,
        folder="/",
        workspaces=nothing,
        clock=clock,
    )
    mailbox = Mailbox(
        TOOLS_AGENT,
        _Watched(agent, claims, line),
        pool=SHARED,
        concurrency=1,
        ack_wait_s=30.0,
        bus=line,  # type: ignore[arg-type]
        reporter=Reporter(bus=line, clock=clock, spool=None),  # type: ignore[arg-type]
        worker=worker,
        ids=_Ids(line),
        clock=clock,
    )
    before = asyncio.all_tasks()
    asyncio.get_running_loop().set_exception_handler(_mourn)
    claims.ask(line)  # type: ignore[arg-type]
    records.publish_to(line)  # type: ignore[arg-type]
    await mailbox.start()
    try:
        line.deliver(message)
        await line.over.wait()
    except Killed:
        pass
    line.dead = True
    left = asyncio.all_tasks() - before
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)


def _mourn(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Nobody asks a dead worker's tasks what became of them."""
    if not isinstance(context.get("exception"), Killed):
        loop.default_exception_handler(context)


class Ended(msgspec.Struct, frozen=True):
    """How a run ended: for the provider, for the control plane, and for whoever counts."""

    state: ExecutionState
    events: list[Event]
    provider: Provider
    attempts: list[int]
    died: bool

    @property
    def claims(self) -> list[int]:
        """The attempts that were granted the call."""
        return [event.attempt for event in self.events if isinstance(event, StepClaimed)]

    @property
    def successes(self) -> list[int]:
        return [event.attempt for event in self.events if isinstance(event, StepSucceeded)]


async def run(kind: Kind, place: str, seed: int) -> Ended:
    """A worker dies at the place with the first attempt; further ones may die anywhere, up to twice."""
    chance = random.Random(f"{kind}/{place}/{seed}")
    ids = UlidSource(SystemClock().now_ms)
    plane, provider = Plane(kind, ids, chance), Provider(honours_keys=kind == "keyed")
    start = m.Start(plane.stamp(), ids.execution(), DEFAULT_TENANT, WORKFLOW, {}, TraceId("0" * 32))
    await plane.hear(start)
    deaths = [place] + [chance.choice(PLACES) for _ in range(chance.choice((0, 0, 1, 2)))]
    died, late = False, list[ExecutionMessage]()
    while plane.mailbox:
        message = plane.mailbox.pop(0)
        line = Line(plane, provider, deaths.pop(0) if deaths else None)
        await works(line, ids, message)
        # A stored result and the word of a death are heard in any order, and one of them perhaps much later.
        told: list[ExecutionMessage] = [_report(plane, result) for result in line.results]
        if line.killed:
            died = True
            told.append(_lost(plane, message.read(StepRequest)))
        chance.shuffle(told)
        told, late = told + late, [told.pop()] if len(told) > 1 and chance.random() < 0.3 else []
        for one in told:
            await plane.hear(one)
        if plane.state.waiting:
            await plane.hear(m.TimeReached(Stamp(10**12)))
    for one in late:
        await plane.hear(one)
    return Ended(plane.state, plane.events, provider, plane.attempts, died)


def _lost(plane: Plane, asked: StepRequest) -> StepReported:
    gone = StepFault(WORKER_LOST, "The worker fell silent.", retryable=True)
    return StepReported(plane.stamp(), asked.path, asked.attempt, WorkerId("plane"), 0, 0, fault=gone)


def _report(plane: Plane, result: StepResult) -> StepReported:
    return StepReported(
        plane.stamp(), result.path, result.attempt, result.worker, 0, 0, output=result.output, fault=result.fault
    )


def wrong_with(kind: Kind, ended: Ended) -> str | None:
    """What must not be, in words; None where all is well."""
    state, provider = ended.state, ended.provider
    in_doubt = bool(state.doubts)
    if not (state.ended or in_doubt):
        return f"it is {state.status} and waits for nobody"
    if len(set(provider.heard)) > 1:
        return f"the key changed between attempts: {provider.heard}"
    if provider.done.total() > 1:
        return f"it was done {provider.done.total()} times"
    if kind != "keyed" and len(provider.heard) > 1:
        return "a call that may have been made was made again"
    if in_doubt and (kind == "keyed" or not ended.claims):
        return "it is in doubt although nothing was claimed"
    if kind == "unkeyed" and state.ended and ended.successes != ended.claims:
        return f"attempts {ended.claims} were granted the call, and {ended.successes} succeeded: it is not in doubt"
    if kind == "looking" and in_doubt:
        return "whoever can look was not asked"
    if state.ended and state.status == "completed" and provider.done.total() != 1:
        return "it is completed and was never done"
    if state.ended and state.status != "completed":
        return f"it ended as {state.status}: {state.fault}"
    return None


def places_of(kind: Kind) -> tuple[str, ...]:
    return tuple(place for place in PLACES if kind != "keyed" or place not in _CLAIMING)


async def count(kind: Kind, place: str, runs: int) -> Counter[str]:
    """Of so many runs: how many died there, ended in doubt, were completed; whatever is wrong raises."""
    found: Counter[str] = Counter()
    for seed in range(runs):
        ended = await run(kind, place, seed)
        wrong = wrong_with(kind, ended)
        assert wrong is None, f"{kind}, {place!r}, run {seed}: {wrong}"
        found["died"] += ended.died
        found["in doubt" if ended.state.doubts else "completed"] += 1
        found["calls made twice"] += len(ended.provider.heard) > 1
    return found


async def _main(runs: int) -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    for kind in KINDS:
        sums: Counter[str] = Counter()
        for place in places_of(kind):
            sums += await count(kind, place, runs)
        sys.stdout.write(f"{kind}: {runs} runs at each of {len(places_of(kind))} places: {dict(sums)}; done twice: 0\n")


if __name__ == "__main__":
    asyncio.run(_main(int(sys.argv[1])))
