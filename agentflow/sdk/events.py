"""What happens, as it happens: the events of one execution, and the live feed. Part of the client."""

from collections.abc import AsyncGenerator, AsyncIterator

from agentflow.errors import Unavailable
from agentflow.limits import EVENTS_PAGE_MAX
from agentflow.sdk.models import EventPage, ExecutionEvent, LiveEvent
from agentflow.sdk.requests import ANSWER_S, BACK_OFF_S, Requests, given, segment
from agentflow.sdk.watching import watch

_FOLLOW_WAIT_S = 20.0  # one long poll; short enough for proxies that cut idle requests at 30 s


class EventRequests(Requests):
    async def events(
        self, execution: str, *, after: int = 0, limit: int = EVENTS_PAGE_MAX, wait_s: float = 0
    ) -> EventPage:
        """Events after a version. With `wait_s` the answer comes with the next event, or when there is none to come."""
        path, parameters = f"/executions/{segment(execution)}/events", given(after=after, limit=limit, wait_s=wait_s)
        return await self._ask("GET", path, EventPage, params=parameters, within_s=ANSWER_S + wait_s)

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
        wanted = given(execution=execution, workflow=workflow)
        return watch(self._transport, self._clock, wanted, after=after, patience_s=patience_s)

    async def _events_patiently(self, execution: str, after: int, patience_s: float) -> EventPage:
        deadline_s = self._clock.monotonic_s() + patience_s
        pause_s, longest_s = BACK_OFF_S
        while True:
            try:
                return await self.events(execution, after=after, wait_s=_FOLLOW_WAIT_S)
            except Unavailable:
                if self._clock.monotonic_s() + pause_s > deadline_s:
                    raise
            await self._clock.sleep(pause_s)
            pause_s = min(pause_s * 2, longest_s)
