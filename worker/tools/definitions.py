"""The definition behind a digest: asked of the control plane once, kept, and believed only if it hashes to its name."""

from collections import OrderedDict

import msgspec

from agentflow.bus import subjects
from agentflow.contracts.step import StepFault
from agentflow.contracts.tool_questions import DefinitionAnswer, DefinitionQuestion
from agentflow.ports import BusUnavailable, MessageBus
from agentflow.tools.load import LoadedTool, tool_from_data
from worker.outcome import StepFailed

_KEPT_MAX = 512
_ANSWER_S = 5.0


class Definitions:
    def __init__(self, pool: str) -> None:
        self._subject = subjects.of_pool(subjects.TOOL_DEFINITIONS, pool)
        self._bus: MessageBus | None = None
        self._kept: OrderedDict[str, LoadedTool] = OrderedDict()

    def ask(self, bus: MessageBus) -> None:
        """From now on, over this bus."""
        self._bus = bus

    async def get(self, tenant: str, digest: str) -> LoadedTool:
        kept = self._kept.get(digest)
        if kept is not None:
            self._kept.move_to_end(digest)
            return kept
        found = await self._asked(tenant, digest)
        if found.digest != digest:
            wrong = f"The control plane answered with another tool definition than {digest[:12]}."
            raise StepFailed(StepFault("tool_definition_wrong", wrong))
        self._kept[digest] = found
        if len(self._kept) > _KEPT_MAX:
            self._kept.popitem(last=False)
        return found

    async def _asked(self, tenant: str, digest: str) -> LoadedTool:
        if self._bus is None:
            raise StepFailed(StepFault("tool_definition_unavailable", "No bus to ask yet.", retryable=True))
        question = msgspec.json.encode(DefinitionQuestion(tenant, digest))
        try:
            raw = await self._bus.request(self._subject, question, within_s=_ANSWER_S)
        except BusUnavailable as error:
            away = f"The tool's pinned definition could not be asked for: {error.message}"
            raise StepFailed(StepFault("tool_definition_unavailable", away, retryable=True)) from None
        answer = msgspec.json.decode(raw, type=DefinitionAnswer)
        if answer.definition is None:
            gone = f"The control plane knows no tool definition {digest[:12]}."
            raise StepFailed(StepFault("tool_definition_missing", gone))
        return tool_from_data(answer.definition)
