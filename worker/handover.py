"""Hands results to the control plane that asked for them: all that end in one moment in one message.

Used by the `reporter`, which goes through the stream wherever this says no: nobody answered in time, or the shard has
another owner by now. A result that was handed over and published is committed once, so saying no is always safe.
"""

import asyncio

import msgspec

from agentflow import limits
from agentflow.contracts.message import Message, encode
from agentflow.errors import AgentFlowError
from agentflow.ports import MessageBus

_Handed = tuple[bytes, asyncio.Future[bool]]


class HandOver:
    def __init__(self, bus: MessageBus) -> None:
        self._bus = bus
        self._waiting: dict[str, list[_Handed]] = {}  # by the subject on which a control plane takes them
        self._under_way: set[asyncio.Task[None]] = set()

    async def is_committed(self, owner: str, message: Message) -> bool:
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_soon(self._send)  # after all that is about to end in this turn of the loop
        committed: asyncio.Future[bool] = loop.create_future()
        self._waiting.setdefault(owner, []).append((encode(message), committed))
        return await committed

    def close(self) -> None:
        for task in self._under_way:
            task.cancel()

    def _send(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for owner, handed in waiting.items():
            for part in _parts(handed):
                task = asyncio.create_task(self._ask(owner, part))
                self._under_way.add(task)
                task.add_done_callback(self._under_way.discard)

    async def _ask(self, owner: str, part: list[_Handed]) -> None:
        question = b"[%b]" % b",".join(written for written, _ in part)
        refused = set(range(len(part)))
        try:
            answer = await self._bus.request(owner, question, within_s=limits.DIRECT_RESULT_S)
            refused = set(msgspec.json.decode(answer, type=list[int]))
        except (AgentFlowError, msgspec.DecodeError):
            pass
        finally:
            for place, (_, committed) in enumerate(part):
                if not committed.done():
                    committed.set_result(place not in refused)


def _parts(handed: list[_Handed]) -> list[list[_Handed]]:
    parts: list[list[_Handed]] = [[]]
    size = 0
    for each in handed:
        size += len(each[0])
        if parts[-1] and size > limits.DIRECT_RESULTS_BYTES:
            parts.append([])
            size = len(each[0])
        parts[-1].append(each)
    return parts
