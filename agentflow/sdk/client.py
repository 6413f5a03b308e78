"""Speaks the REST contract, asynchronously: one method for each thing the API can do; `follow` and `watch` on top.

The CLI and user programs call it (`blocking` is for programs without an event loop). What only reads, or carries a key,
is sent again where the control plane does not answer; `execute` without a key and `push_workflow` are sent once.
"""

import asyncio
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import quote

import msgspec

from agentflow.clock import Clock, SystemClock
from agentflow.errors import Bug, Conflict, Limited, Unavailable
from agentflow.limits import EVENTS_PAGE_MAX
from agentflow.sdk.audit import AuditOperations
from agentflow.sdk.errors import NotAgentFlow
from agentflow.sdk.identity import IdentityOperations
from agentflow.sdk.models import (
    Agent,
    AgentList,
    CostReport,
    DeploymentStatus,
    EvaluationList,
    EventPage,
    Execution,
    ExecutionEvent,
    ExecutionList,
    ExecutionSummary,
    LiveEvent,
    MoveVerdict,
    PushedTool,
    PushedWorkflow,
    Schedule,
    ScheduleList,
    StartedExecution,
    Step,
    StepList,
    TaskList,
    TestedTool,
    Tick,
    TickList,
    Tool,
    ToolList,
    Workflow,
    WorkflowList,
    WorkflowSummary,
)
from agentflow.sdk.records import RecordOperations
from agentflow.sdk.transport import Response, Transport
from agentflow.sdk.watching import watch
from agentflow.tls import TlsFiles, client_context

_Answer = TypeVar("_Answer")
_Page = TypeVar("_Page", ExecutionList, WorkflowList)

_CREATED = 201
_AT_ONCE = 200  # executions asked beside each other
_LIMITED_S_MAX = 5.0  # who is told to come back later than this decides for themselves
_TEST_S = 120.0  # a tool that is tried out may take this long
_ANSWER_S = 30.0  # how long an answer may take beyond the wait that was asked for
_FOLLOW_WAIT_S = 20.0  # one long poll; short enough for proxies that cut idle requests at 30 s
_BACK_OFF_S = (0.1, 2.0)  # first and longest pause between attempts to reach a control plane that is away


class Client:
    """`async with Client("http://127.0.0.1:8080", api_key="afk_…") as af: await af.execute("support", {…})`

    `token` is sent where both are given. `tls`: an authority of your own, and a certificate to show.
    """

    def __init__(
        self,
        api_url: str,
        *,
        token: str | None = None,
        api_key: str | None = None,
        retries: int = 2,
        clock: Clock | None = None,
        tls: TlsFiles | None = None,
    ) -> None:
        self.api_url = api_url.rstrip("/")
        bearer = token or api_key
        headers = {} if bearer is None else {"Authorization": f"Bearer {bearer}"}
        self._transport = Transport(self.api_url, headers, None if tls is None else client_context(tls))
        self._retries = retries
        self._clock = clock or SystemClock()

    async def __aenter__(self) -> Self:
        await self._transport.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._transport.close()

    @property
    def identity(self) -> IdentityOperations:
        """Logging in, people, roles, keys and tenants."""
        return IdentityOperations(self._asked)

    @property
    def audit(self) -> AuditOperations:
        """Who did what."""
        return AuditOperations(self._asked)

    @property
    def records(self) -> RecordOperations:
        """What is asked about executions that are on record: replays."""
        return RecordOperations(self._asked)

    async def _asked(
        self,
        method: str,
        path: str,
        shape: type[_Answer],
        body: dict[str, Any] | None = None,
        *,
        key: str | None = None,
    ) -> _Answer:
        content = None if body is None else msgspec.json.encode(body)
        headers = {"Content-Type": "application/json", **({} if key is None else {"Idempotency-Key": key})}
        response = await self._send(method, path, content=content, headers=headers)
        return self._read(response, shape) if response.content else msgspec.convert(None, shape)

    async def push_workflow(self, text: str | bytes, content_type: str = "application/yaml") -> PushedWorkflow:
        response = await self._send("POST", "/workflows", content=text, headers={"Content-Type": content_type})
        pushed = self._read(response, PushedWorkflow)
        return msgspec.structs.replace(pushed, created=response.status == _CREATED)

    async def workflows(
        self,
        *,
        name: str | None = None,
        tag: str | None = None,
        cursor: str | None = None,
        limit: int | None = None,
    ) -> WorkflowList:
        """One page, newest first."""
        parameters = _asked(limit=limit, cursor=cursor, name=name, tag=tag)
        return self._read(await self._send("GET", "/workflows", params=parameters), WorkflowList)

    async def iter_workflows(self, **filters: Any) -> AsyncIterator[WorkflowSummary]:
        """Every version that fits the filters of `workflows`, page by page as they are asked for."""
        async for page in _pages(lambda cursor: self.workflows(cursor=cursor, **filters)):
            for item in page.items:
                yield item

    async def workflow(self, ref: str) -> Workflow:
        """By id, by name (its newest version) or by `name@version`."""
        return self._read(await self._send("GET", f"/workflows/{_segment(ref)}"), Workflow)

    async def push_tool(self, text: str | bytes, content_type: str = "application/yaml") -> PushedTool:
        response = await self._send("POST", "/tools", content=text, headers={"Content-Type": content_type})
        pushed = self._read(response, PushedTool)
        return msgspec.structs.replace(pushed, created=response.status == _CREATED)

    async def tools(self, *, name: str | None = None, cursor: str | None = None, limit: int = 200) -> ToolList:
        parameters = _asked(limit=limit, cursor=cursor, name=name)
        return self._read(await self._send("GET", "/tools", params=parameters), ToolList)

    async def status(self) -> DeploymentStatus:
        """What kind of deployment this is."""
        return self._read(await self._send("GET", "/status"), DeploymentStatus)

    async def agents(self) -> list[Agent]:
        """Those that some worker answers for now."""
        return self._read(await self._send("GET", "/agents", params=_asked(limit=200)), AgentList).items

    async def steps(self, execution: str, *, after: int = 0) -> list[Step]:
        """The steps of an execution and how far each has come, in the order in which they were first asked for."""
        path = f"/executions/{_segment(execution)}/steps"
        return self._read(await self._send("GET", path, params=_given(after=after)), StepList).items

    async def tool(self, ref: str) -> Tool:
        """By name (its newest version), `name@1` or `name@1.2.0`."""
        return self._read(await self._send("GET", f"/tools/{_segment(ref)}"), Tool)

    async def test_tool(self, ref: str, input: Any, *, network: bool = False) -> TestedTool:
        """One call on some worker, outside of any execution."""
        response = await self._send(
            "POST",
            f"/tools/{_segment(ref)}/test",
            content=msgspec.json.encode({"input": input, "network": network}),
            headers={"Content-Type": "application/json"},
            within_s=_ANSWER_S + _TEST_S,
        )
        return self._read(response, TestedTool)

    async def execute(
        self,
        ref: str,
        input: Any,
        *,
        wait: bool = False,
        wait_s: float = 60,
        key: str | None = None,
        priority: int = 0,
        delay: str | None = None,
        start_at: str | None = None,
    ) -> StartedExecution:
        """With a `key` of your own, sending the same again after a lost answer gives the same execution.

        It begins no earlier than `start_at` (RFC 3339), or than after `delay` (`10m`); of those that wait for room,
        the higher `priority` goes first.
        """
        how = {"priority": priority or None, "delay": delay, "start_at": start_at}
        body = {
            "input": input,
            "wait": wait,
            "wait_s": wait_s,
            **{name: it for name, it in how.items() if it is not None},
        }
        response = await self._send(
            "POST",
            f"/workflows/{_segment(ref)}/execute",
            content=msgspec.json.encode(body),
            headers={"Content-Type": "application/json", **({} if key is None else {"Idempotency-Key": key})},
            within_s=_ANSWER_S + (wait_s if wait else 0),
        )
        return self._read(response, StartedExecution)

    async def executions(
        self,
        *,
        workflow: str | None = None,
        status: str | None = None,
        tag: str | None = None,
        started_after: str | None = None,
        started_before: str | None = None,
        input: dict[str, str] | None = None,
        cursor: str | None = None,
        limit: int | None = None,
    ) -> ExecutionList:
        """One page, newest first. `status` may be several with commas; `input` looks into it, by paths with dots."""
        attributes = {f"input.{path}": value for path, value in (input or {}).items()}
        parameters = _asked(
            limit=limit,
            cursor=cursor,
            workflow=workflow,
            status=status,
            tag=tag,
            started_after=started_after,
            started_before=started_before,
            **attributes,
        )
        return self._read(await self._send("GET", "/executions", params=parameters), ExecutionList)

    async def iter_executions(self, **filters: Any) -> AsyncIterator[ExecutionSummary]:
        """Every execution that fits the filters of `executions`, page by page as they are asked for."""
        async for page in _pages(lambda cursor: self.executions(cursor=cursor, **filters)):
            for item in page.items:
                yield item

    async def execution(self, execution: str) -> Execution:
        return self._read(await self._send("GET", f"/executions/{_segment(execution)}"), Execution)

    async def set_breakpoints(self, execution: str, at: list[str]) -> Execution:
        """Pause before anything at these places begins, in place of those before."""
        return await self._ask(execution, "breakpoints", {"at": at})

    async def ticks(self, execution: str, *, after: int = 0, limit: int | None = None) -> TickList:
        """What each tick of a behaviour tree changed."""
        path, parameters = f"/executions/{_segment(execution)}/ticks", _given(after=after, limit=limit)
        return self._read(await self._send("GET", path, params=parameters), TickList)

    async def tick(self, execution: str, version: int) -> Tick:
        """How a behaviour tree stood at a version of its execution."""
        return self._read(await self._send("GET", f"/executions/{_segment(execution)}/ticks/{version}"), Tick)

    async def evaluations(self, execution: str, *, after: int = 0, limit: int | None = None) -> EvaluationList:
        """Every expression that an execution evaluated, with the values it read."""
        path, parameters = f"/executions/{_segment(execution)}/evaluations", _given(after=after, limit=limit)
        return self._read(await self._send("GET", path, params=parameters), EvaluationList)

    async def costs(self, *, scope: str = "tenant", period: str = "today") -> CostReport:
        """What was spent, by `tenant`, `workflow`, `agent` or `resource`; the dearest first."""
        return self._read(await self._send("GET", "/costs", params=_given(scope=scope, period=period)), CostReport)

    async def tasks(self, *, limit: int | None = None) -> TaskList:
        """What waits for people, over all executions: whoever waits longest comes first."""
        return self._read(await self._send("GET", "/tasks", params=_given(limit=limit)), TaskList)

    async def create_schedule(self, name: str, workflow: str, input: Any = None, **when: Any) -> Schedule:
        """`when`: `cron` or `every`, and if wanted `timezone`, `overlap`, `catch_up`, `jitter`, `starts_at`, `ends_at`,
        `offset`, `paused`. Creating the same again changes nothing."""
        given = {key: value for key, value in when.items() if value is not None}
        body = {"name": name, "workflow": workflow, "input": {} if input is None else input, **given}
        response = await self._send(
            "POST", "/schedules", content=msgspec.json.encode(body), headers={"Content-Type": "application/json"}
        )
        return self._read(response, Schedule)

    async def schedules(self, *, limit: int | None = None) -> ScheduleList:
        return self._read(await self._send("GET", "/schedules", params=_given(limit=limit)), ScheduleList)

    async def schedule(self, name: str) -> Schedule:
        return self._read(await self._send("GET", f"/schedules/{_segment(name)}"), Schedule)

    async def pause_schedule(self, name: str) -> Schedule:
        """Fire no more; what it has started goes on."""
        return self._read(await self._send("POST", f"/schedules/{_segment(name)}/pause"), Schedule)

    async def resume_schedule(self, name: str) -> Schedule:
        return self._read(await self._send("POST", f"/schedules/{_segment(name)}/resume"), Schedule)

    async def delete_schedule(self, name: str) -> None:
        await self._send("DELETE", f"/schedules/{_segment(name)}")

    async def trigger_schedule(self, name: str, *, key: str | None = None) -> str:
        """Start an execution now, beside its moments; its id."""
        headers = {} if key is None else {"Idempotency-Key": key}
        response = await self._send("POST", f"/schedules/{_segment(name)}/trigger", headers=headers)
        return self._read(response, _Triggered).execution_id

    async def pause(self, execution: str, *, reason: str = "") -> Execution:
        """Begin nothing new; what runs may end."""
        return await self._ask(execution, "pause", {"reason": reason})

    async def resume(self, execution: str) -> Execution:
        return await self._ask(execution, "resume")

    async def pause_all(self, *, workflow: str | None = None, reason: str = "") -> int:
        """Every running execution, or every one of a workflow; how many that were. What starts later is not paused."""
        return await self._each("running", workflow, lambda execution: self.pause(execution, reason=reason))

    async def resume_all(self, *, workflow: str | None = None) -> int:
        return await self._each("paused", workflow, self.resume)

    async def _each(self, status: str, workflow: str | None, ask: Callable[[str], Awaitable[Execution]]) -> int:
        """Ask it of all with a status, page by page: whoever was asked has another one. Who ended meanwhile is left."""
        asked: set[str] = set()
        changed = 0
        while True:
            page = await self.executions(workflow=workflow, status=status, limit=_AT_ONCE)
            rest = [item.id for item in page.items if item.id not in asked]
            if not rest:
                return changed
            asked.update(rest)
            answers = await asyncio.gather(*(ask(execution) for execution in rest), return_exceptions=True)
            for answer in answers:
                if isinstance(answer, BaseException) and not isinstance(answer, Conflict):
                    raise answer
                changed += not isinstance(answer, BaseException)

    async def cancel(self, execution: str, *, reason: str = "") -> Execution:
        """Stop in order, with the compensations that the workflow declares."""
        return await self._ask(execution, "cancel", {"reason": reason})

    async def terminate(self, execution: str, *, reason: str = "") -> Execution:
        """Stop now, without undoing anything."""
        return await self._ask(execution, "terminate", {"reason": reason})

    async def signal(self, execution: str, name: str, payload: Any = None) -> Execution:
        return await self._ask(execution, "signal", {"name": name, "payload": payload})

    async def update_vars(self, execution: str, vars: dict[str, Any]) -> Execution:
        return await self._ask(execution, "vars", {"vars": vars})

    async def answer(self, execution: str, task: str, answer: Any) -> Execution:
        """Answer a task that the execution has put before people; `task` is its path."""
        return await self._ask(execution, f"tasks/{quote(task)}/answer", {"answer": answer})

    async def move(
        self,
        execution: str,
        to: str,
        *,
        rename: dict[str, str] | None = None,
        vars: dict[str, Any] | None = None,
        reason: str = "",
    ) -> Execution:
        """Pin an execution to another version of its workflow from here on; `rename` says which variable had which
        name before, `vars` gives values. Refused with a `Conflict`, and then nothing has changed."""
        return await self._ask(
            execution, "move", {"to": to, "rename": rename or {}, "vars": vars or {}, "reason": reason}
        )

    async def check_move(
        self, execution: str, to: str, *, rename: dict[str, str] | None = None, vars: dict[str, Any] | None = None
    ) -> MoveVerdict:
        """What `move` would meet, as the execution stands now."""
        body = {"to": to, "rename": rename or {}, "vars": vars or {}}
        return await self._asked("POST", f"/executions/{_segment(execution)}/move/check", MoveVerdict, body)

    async def retry(self, execution: str) -> Execution:
        """Continue a failed execution from the step that failed."""
        return await self._ask(execution, "retry")

    async def fork(
        self,
        execution: str,
        *,
        from_: str | None = None,
        after: str | None = None,
        reason: str = "",
        key: str | None = None,
        **edits: Any,
    ) -> StartedExecution:
        """Another execution with this one's events up to a step, child or task, by its path; this one is only read.

        `from_` a path, that begins anew (with another `input`, if given); or `after` one, on from its recorded outcome
        (or the `output` given). `vars` sets variables either way.
        """
        place = {"from": from_} if from_ is not None else {"after": after}
        response = await self._send(
            "POST",
            f"/executions/{_segment(execution)}/fork",
            content=msgspec.json.encode({**place, **edits, "reason": reason}),
            headers={"Content-Type": "application/json", "Idempotency-Key": key or secrets.token_hex(16)},
        )
        return self._read(response, StartedExecution)

    async def failed_at(
        self, step: str, *, workflow: str | None = None, since: str | None = None
    ) -> AsyncIterator[Execution]:
        """Every failed execution that could not go on from a step, by its path; started `since` (RFC 3339)."""

        def failed(cursor: str | None) -> Awaitable[ExecutionList]:
            return self.executions(
                workflow=workflow, status="failed", started_after=since, cursor=cursor, limit=_AT_ONCE
            )

        async for page in _pages(failed):
            for found in await asyncio.gather(*(self.execution(item.id) for item in page.items)):
                if found.failed_at == step:
                    yield found

    async def _ask(self, execution: str, what: str, body: dict[str, Any] | None = None) -> Execution:
        response = await self._send(
            "POST",
            f"/executions/{_segment(execution)}/{what}",
            content=b"" if body is None else msgspec.json.encode(body),
            # Recorded once, however often it is sent.
            headers={"Content-Type": "application/json", "Idempotency-Key": secrets.token_hex(16)},
        )
        return self._read(response, Execution)

    async def events(
        self, execution: str, *, after: int = 0, limit: int = EVENTS_PAGE_MAX, wait_s: float = 0
    ) -> EventPage:
        """Events after a version. With `wait_s` the answer comes with the next event, or when there is none to come."""
        response = await self._send(
            "GET",
            f"/executions/{_segment(execution)}/events",
            params=_given(after=after, limit=limit, wait_s=wait_s),
            within_s=_ANSWER_S + wait_s,
        )
        return self._read(response, EventPage)

    async def history(self, execution: str) -> list[ExecutionEvent]:
        """Every event committed so far."""
        events: list[ExecutionEvent] = []
        while page := (await self.events(execution, after=events[-1].version if events else 0)).items:
            events += page
        return events

    async def follow(self, execution: str, *, after: int = 0, patience_s: float = 60) -> AsyncIterator[ExecutionEvent]:
        """Every event as it is committed, until the execution has ended.

        A control plane that goes away is waited for; only `patience_s` without any answer raises `Unavailable`.
        """
        ended = False
        while not ended:
            page = await self._events_patiently(execution, after, patience_s)
            for event in page.items:
                yield event
                after = event.version
            ended = page.ended

    def watch(
        self,
        *,
        execution: str | None = None,
        workflow: str | None = None,
        after: int | None = None,
        patience_s: float = 60,
    ) -> AsyncGenerator[LiveEvent, None]:
        """Live events of an execution, a workflow (by name) or everything, without end: each once, in order.

        Begins behind the number `after`, or now. A control plane that goes away is waited for.
        """
        asked = _given(execution=execution, workflow=workflow)
        return watch(self._transport, self._clock, asked, after=after, patience_s=patience_s)

    async def ready(self) -> bool:
        """Whether a control plane is there and takes work."""
        try:
            await self._send("GET", f"{self.api_url}/readyz", within_s=5)
        except Unavailable:
            return False
        return True

    async def _events_patiently(self, execution: str, after: int, patience_s: float) -> EventPage:
        deadline_s = self._clock.monotonic_s() + patience_s
        pause_s, longest_s = _BACK_OFF_S
        while True:
            try:
                return await self.events(execution, after=after, wait_s=_FOLLOW_WAIT_S)
            except Unavailable:
                if self._clock.monotonic_s() + pause_s > deadline_s:
                    raise
            await self._clock.sleep(pause_s)
            pause_s = min(pause_s * 2, longest_s)

    async def _send(
        self,
        method: str,
        path: str,
        *,
        content: str | bytes | None = None,
        headers: dict[str, str] | None = None,
        params: dict[str, str | float] | None = None,
        within_s: float = _ANSWER_S,
    ) -> Response:
        """Once, or again where that changes nothing: a read, a request with a key, or one that was turned away."""
        repeatable = method == "GET" or (headers is not None and "Idempotency-Key" in headers)
        pause_s, longest_s = _BACK_OFF_S
        for left in range(self._retries, -1, -1):
            try:
                return await self._transport.send(
                    method, path, content=content, headers=headers, params=params, within_s=within_s
                )
            except Limited as limited:
                if not left or limited.retry_after_s > _LIMITED_S_MAX:
                    raise
                await self._clock.sleep(limited.retry_after_s)
            except NotAgentFlow:
                raise
            except Unavailable:
                if not left or not repeatable:
                    raise
                await self._clock.sleep(pause_s)
                pause_s = min(pause_s * 2, longest_s)
        raise Bug("A request was neither answered nor given up.")

    def _read(self, response: Response, shape: type[_Answer]) -> _Answer:
        try:
            return msgspec.json.decode(response.content, type=shape)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise NotAgentFlow(self.api_url, f"unexpected answer to {response.path}: {error}") from None


class _Triggered(msgspec.Struct, frozen=True):
    execution_id: str


def _segment(text: str) -> str:
    """One part of a path, whatever it holds: a slash in a name must not reach another route."""
    return quote(text, safe="@")


async def _pages(ask: Callable[[str | None], Awaitable[_Page]]) -> AsyncIterator[_Page]:
    cursor: str | None = None
    while True:
        page = await ask(cursor)
        yield page
        cursor = page.next_cursor
        if cursor is None:
            return


def _asked(limit: int | None = None, cursor: str | None = None, **filters: str | None) -> dict[str, str | float]:
    """The parameters of a list."""
    return _given(limit=limit, cursor=cursor, **{f"filter[{field}]": value for field, value in filters.items()})


def _given(**parameters: str | float | None) -> dict[str, str | float]:
    return {name: value for name, value in parameters.items() if value is not None}
