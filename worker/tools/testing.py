"""Answers `af tool test`: a call outside of any execution, on whichever worker hears the question."""

from collections.abc import Awaitable, Callable

import msgspec

from agentflow.contracts.step import StepFault
from agentflow.contracts.tool_questions import ToolTest, ToolTestOutcome
from worker.tools.agent import ToolsAgent

_decoder = msgspec.json.Decoder(ToolTest)
_encode = msgspec.json.Encoder().encode


def answer_tests(tools: ToolsAgent) -> Callable[[bytes], Awaitable[bytes]]:
    async def answer(raw: bytes) -> bytes:
        try:
            test = _decoder.decode(raw)
        except msgspec.DecodeError as error:
            return _encode(ToolTestOutcome(fault=StepFault("test_unreadable", str(error))))
        return _encode(await tools.try_out(test))

    return answer
