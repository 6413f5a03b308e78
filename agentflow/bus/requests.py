"""Questions to whoever answers a subject now, any number at once: one inbox for all answers, one alarm for deadlines.

Given a `Line` by `nats_jetstream`. Unlike a publish nothing is asked again: without an answer nobody knows what became
of the question. nats-py's own way (two tasks, a timer and a wake-up of its flusher for each) takes longer than most
answers do.
"""

import asyncio
import heapq
from itertools import count

from agentflow.bus import wire
from agentflow.ports import BusUnavailable, NobodyListens


class _Question:
    __slots__ = ("answer", "subject", "within_s")

    def __init__(self, subject: str, within_s: float, answer: asyncio.Future[bytes]) -> None:
        self.subject = subject
        self.within_s = within_s
        self.answer = answer

    def refuse(self, error: BusUnavailable) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


class Requests:
    def __init__(self, line: wire.Line) -> None:
        self._line = line
        self._loop = asyncio.get_running_loop()
        self._tokens = count()
        self._asked: dict[bytes, _Question] = {}
        self._deadlines: list[tuple[float, bytes]] = []
        self._alarm: asyncio.TimerHandle | None = None
        self._inbox: wire.Inbox | None = None

    async def open(self) -> None:
        self._inbox = await self._line.open_inbox(self._answered)

    async def ask(self, subject: str, payload: bytes, *, within_s: float) -> bytes:
        if self._inbox is None or not self._line.is_connected:
            raise BusUnavailable("the connection is down")
        token = b"%d" % next(self._tokens)
        question = self._asked[token] = _Question(subject, within_s, self._loop.create_future())
        try:
            self._line.send(wire.publication(subject, payload, reply=f"{self._inbox.subject}.{token.decode()}"))
            heapq.heappush(self._deadlines, (self._loop.time() + within_s, token))
            if self._deadlines[0][1] == token:
                self._set_alarm()
            return await question.answer
        finally:
            del self._asked[token]

    def refuse_all(self, reason: str) -> None:
        """The line is down or about to be: no answer will come to what was asked over it."""
        for question in self._asked.values():
            question.refuse(BusUnavailable(reason))

    def close(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self.refuse_all("this process is leaving the bus")

    def _answered(self, subject: bytes, reply: bytes, data: bytes, headers: bytes) -> None:
        question = self._asked.get(subject.rpartition(b".")[2])
        if question is None or question.answer.done():
            return
        if headers and (status := wire.status(headers)) is not None:
            nobody = NobodyListens(f"nobody answers {question.subject}")
            question.refuse(nobody if status.code == 503 else BusUnavailable(status.text))
        else:
            question.answer.set_result(data)

    def _set_alarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = self._loop.call_at(self._deadlines[0][0], self._give_up)

    def _give_up(self) -> None:
        """Refuses what is due, and forgets what has been answered before."""
        now = self._loop.time()
        self._alarm = None
        while self._deadlines:
            deadline, token = self._deadlines[0]
            question = self._asked.get(token)
            if question is not None and deadline > now:
                self._set_alarm()
                return
            heapq.heappop(self._deadlines)
            if question is not None:
                question.refuse(BusUnavailable(f"no answer on {question.subject} within {question.within_s:g} s"))
