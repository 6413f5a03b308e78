"""What is asked of executions: pause, cancel, signal, move, fork and the rest. Part of the client.

Each request carries a key, so that it is done once, however often it is sent.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import quote

from agentflow.errors import Conflict
from agentflow.limits import WAIT_S_MAX
from agentflow.sdk.executions import ExecutionRequests
from agentflow.sdk.models import Execution, MoveVerdict, PlatformAsked, StartedExecution
from agentflow.sdk.requests import new_key, segment

_AT_ONCE = 200  # executions asked beside each other


class OrderRequests(ExecutionRequests):
    async def pause(self, execution: str, *, reason: str = "") -> Execution:
        """Begin nothing new; what runs may end."""
        return await self._order(execution, "pause", {"reason": reason})

    async def resume(self, execution: str) -> Execution:
        return await self._order(execution, "resume")

    async def pause_all(self, *, workflow: str | None = None, reason: str = "") -> int:
        """Every running execution, or every one of a workflow; how many that were. What starts later is not paused."""
        return await self._each("running", workflow, lambda execution: self.pause(execution, reason=reason))

    async def resume_all(self, *, workflow: str | None = None) -> int:
        return await self._each("paused", workflow, self.resume)

    async def pause_everywhere(self, *, reason: str = "") -> PlatformAsked:
        """Every execution of every tenant that runs now. For who runs the deployment."""
        body = {"reason": reason}
        return await self._ask("POST", "/platform/pause", PlatformAsked, body, key=new_key(), within_s=WAIT_S_MAX)

    async def resume_everywhere(self) -> PlatformAsked:
        """What `pause_everywhere` has paused. What a tenant has paused itself stays so."""
        return await self._ask("POST", "/platform/resume", PlatformAsked, key=new_key(), within_s=WAIT_S_MAX)

    async def _each(self, status: str, workflow: str | None, ask: Callable[[str], Awaitable[Execution]]) -> int:
        """Ask it of all with a status, page by page: whoever was asked has another one. Who ended meanwhile is left."""
        seen: set[str] = set()
        changed = 0
        while True:
            page = await self.executions(workflow=workflow, status=status, limit=_AT_ONCE)
            rest = [item.id for item in page.items if item.id not in seen]
            if not rest:
                return changed
            seen.update(rest)
            answers = await asyncio.gather(*(ask(execution) for execution in rest), return_exceptions=True)
            for answer in answers:
                if isinstance(answer, BaseException) and not isinstance(answer, Conflict):
                    raise answer
                changed += not isinstance(answer, BaseException)

    async def cancel(self, execution: str, *, reason: str = "") -> Execution:
        """Stop in order, with the compensations that the workflow declares."""
        return await self._order(execution, "cancel", {"reason": reason})

    async def terminate(self, execution: str, *, reason: str = "") -> Execution:
        """Stop now, without undoing anything."""
        return await self._order(execution, "terminate", {"reason": reason})

    async def signal(self, execution: str, name: str, payload: Any = None) -> Execution:
        return await self._order(execution, "signal", {"name": name, "payload": payload})

    async def update_vars(self, execution: str, vars: dict[str, Any]) -> Execution:
        return await self._order(execution, "vars", {"vars": vars})

    async def set_breakpoints(self, execution: str, at: list[str]) -> Execution:
        """Pause before anything at these places begins, in place of those before."""
        return await self._order(execution, "breakpoints", {"at": at})

    async def answer(self, execution: str, task: str, answer: Any) -> Execution:
        """Answer a task that the execution has put before people; `task` is its path."""
        return await self._order(execution, f"tasks/{quote(task)}/answer", {"answer": answer})

    async def retry(self, execution: str) -> Execution:
        """Continue a failed execution from the step that failed."""
        return await self._order(execution, "retry")

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
        body = {"to": to, "rename": rename or {}, "vars": vars or {}, "reason": reason}
        return await self._order(execution, "move", body)

    async def check_move(
        self, execution: str, to: str, *, rename: dict[str, str] | None = None, vars: dict[str, Any] | None = None
    ) -> MoveVerdict:
        """What `move` would meet, as the execution stands now."""
        body = {"to": to, "rename": rename or {}, "vars": vars or {}}
        return await self._ask("POST", f"/executions/{segment(execution)}/move/check", MoveVerdict, body)

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
        body = {**place, **edits, "reason": reason}
        path = f"/executions/{segment(execution)}/fork"
        return await self._ask("POST", path, StartedExecution, body, key=key or new_key())

    async def _order(self, execution: str, what: str, body: dict[str, Any] | None = None) -> Execution:
        return await self._ask("POST", f"/executions/{segment(execution)}/{what}", Execution, body, key=new_key())
