"""What the control plane and workers ask each other about tools, over the bus: definitions, and calls to try out."""

from collections.abc import Awaitable, Callable

import msgspec

from agentflow.bus import subjects
from agentflow.contracts.pools import Pools, may_act_for
from agentflow.contracts.step import TOOLS_AGENT
from agentflow.contracts.tool_questions import DefinitionAnswer, DefinitionQuestion, ToolTest, ToolTestOutcome
from agentflow.errors import Unavailable
from agentflow.ids import TenantId
from agentflow.ports import BusUnavailable, MessageBus
from control_plane.registry.tools import ToolRegistry

_TEST_S = 120.0
_GROUP = "control-plane"


class NoWorkerForTools(Unavailable):
    code = "AF1435"

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"No worker tried the tool out: {reason}",
            hint="Start one whose agents file has `tools:` or `registered_tools:`, then ask again.",
        )


async def answer_definitions(bus: MessageBus, tools: ToolRegistry) -> None:
    """Let workers ask for the definition that an execution is pinned to. Replicas share the questions."""

    async def answer(pool: str, raw: bytes) -> bytes:
        question = msgspec.json.decode(raw, type=DefinitionQuestion)
        definition = None
        if may_act_for(pool, question.tenant_id):
            definition = await tools.definition(TenantId(question.tenant_id), question.digest)
        return msgspec.json.encode(DefinitionAnswer(definition))

    await bus.answer_pools(subjects.TOOL_DEFINITIONS, answer, group=_GROUP)


def tests_on(bus: MessageBus, pools: Pools) -> Callable[[ToolTest], Awaitable[ToolTestOutcome]]:
    async def ask(test: ToolTest) -> ToolTestOutcome:
        try:
            subject = subjects.of_pool(subjects.TOOL_TESTS, pools.of(TenantId(test.tenant_id), TOOLS_AGENT))
            raw = await bus.request(subject, msgspec.json.encode(test), within_s=_TEST_S)
        except BusUnavailable as error:
            raise NoWorkerForTools(error.message) from None
        return msgspec.json.decode(raw, type=ToolTestOutcome)

    return ask
