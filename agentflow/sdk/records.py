"""What is asked about executions that are on record: replays, trials, traces. Part of the client: `client.records`."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec

from agentflow.errors import Unavailable
from agentflow.limits import LIST_PAGE_MAX
from agentflow.sdk.models import Deployment, DeploymentList, Execution, Job, Replay, Replays, TraceView
from agentflow.sdk.requests import Ask, given, new_key, pages, segment

_LOOK_S = 0.5
_PATIENCE_S = 60.0  # a control plane that goes away while a job is under way is waited for this long


class JobFailed(Unavailable):
    code = "AF2007"

    def __init__(self, job: Job) -> None:
        super().__init__(
            f"The job {job.id} failed: {job.error}",
            hint="Ask again; if it fails again, the log of the control plane says more.",
        )


class RecordOperations:
    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    async def replay(
        self, execution: str, *, against: str | None = None, definition: str | None = None, workflow: str | None = None
    ) -> Replay:
        """Decide a recorded execution again, by its own version, by another one, or by a definition of yours.

        A snapshot's id will do as well, also when the history is gone.

        `workflow` is its name, where you know it: it is asked for otherwise.
        """
        if workflow is None:
            kept = "snapshots" if execution.startswith("snap_") else "executions"
            known = await self._ask("GET", f"/{kept}/{segment(execution)}", _Known)
            workflow = known.workflow.name
        body = _replay_body(against, definition, executions=[execution])
        answer = await self._ask("POST", _replay_path(workflow), dict[str, Any], body, key=new_key())
        if "job_id" not in answer:
            return msgspec.convert(answer, Replay)
        job = await self.finished(answer["job_id"])
        return msgspec.convert(job.result, Replays).items[0]

    async def replay_many(
        self,
        workflow: str,
        *,
        executions: Sequence[str] = (),
        last: int | None = None,
        against: str | None = None,
        definition: str | None = None,
    ) -> Job:
        """Begin to replay these, or the `last` ones that are over; `finished` waits for the job."""
        body = _replay_body(against, definition, executions=list(executions) or None, last=last)
        return await self._ask("POST", _replay_path(workflow), Job, body, key=new_key())

    async def deploy(self, definition: str, *, accept_divergence: str | None = None, last: int | None = None) -> Job:
        """Begin to try a version on the `last` executions of its workflow and, if they come out so, to register it."""
        body = {"definition": definition, **given(accept_divergence=accept_divergence, last=last)}
        return await self._ask("POST", "/deployments", Job, body, key=new_key())

    async def deployments(self, workflow: str) -> list[Deployment]:
        """How the versions of a workflow came to be registered, newest first."""
        path = f"/workflows/{segment(workflow)}/deployments?limit={LIST_PAGE_MAX}"

        async def page(cursor: str | None) -> DeploymentList:
            return await self._ask("GET", path if cursor is None else f"{path}&cursor={cursor}", DeploymentList)

        return [deployment async for found in pages(page) for deployment in found.items]

    async def state(self, execution: str, version: int) -> Execution:
        """Where an execution stood after so many of its events."""
        path = f"/executions/{segment(execution)}/state?version={version}"
        return await self._ask("GET", path, Execution)

    async def trace(self, trace_id: str) -> TraceView:
        """Everything that was done under a trace id, as spans in the order in which they began."""
        return await self._ask("GET", f"/traces/{segment(trace_id)}", TraceView)

    async def job(self, job: str) -> Job:
        return await self._ask("GET", f"/jobs/{segment(job)}", Job)

    async def follow_job(self, job: str) -> AsyncIterator[Job]:
        """As it is now and after each change, until it is over."""
        seen: Job | None = None
        while seen is None or not seen.is_over:
            newest = await self._patiently(job)
            if newest != seen:
                yield newest
            seen = newest
            if not newest.is_over:
                await asyncio.sleep(_LOOK_S)

    async def finished(self, job: str) -> Job:
        """The job once it is over. Raises `JobFailed`."""
        async for seen in self.follow_job(job):
            if seen.status == "failed":
                raise JobFailed(seen)
            if seen.is_over:
                return seen
        raise AssertionError("a job is followed to its end")

    async def _patiently(self, job: str) -> Job:
        for _ in range(int(_PATIENCE_S / _LOOK_S)):
            try:
                return await self.job(job)
            except Unavailable:
                await asyncio.sleep(_LOOK_S)
        return await self.job(job)


class _KnownWorkflow(msgspec.Struct, frozen=True):
    name: str


class _Known(msgspec.Struct, frozen=True):
    workflow: _KnownWorkflow


def _replay_path(workflow: str) -> str:
    return f"/workflows/{segment(workflow)}/replay"


def _replay_body(against: str | None, definition: str | None, **more: Any) -> dict[str, Any]:
    return given(against=against, definition=definition, **more)
