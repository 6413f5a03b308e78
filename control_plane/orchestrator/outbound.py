"""Turns committed facts into messages: steps to agents, and word to whoever works on what nobody waits for.

Called only after the commit. Sends without waiting for the stream's receipt: what is lost here is sent again
by the sweeper, because the events that imply it are stored.
"""

from collections.abc import Callable
from typing import Any

import msgspec
import structlog

from agentflow.bus import subjects
from agentflow.clock import Clock
from agentflow.contracts.claims import parted
from agentflow.contracts.message import Kind, Message, payload_of, sealed, unsealed
from agentflow.contracts.pools import Pools
from agentflow.contracts.step import CancelSteps, StepFault, StepRequest
from agentflow.errors import Bug, Rejected
from agentflow.execution.commands import CancelStep, DispatchStep
from agentflow.execution.events import WorkflowRef
from agentflow.execution.state import ExecutionState
from agentflow.ids import ExecutionId, UlidSource, shard_of
from agentflow.ports import BusUnavailable, MessageBus
from control_plane.orchestrator.inbox import WayBack

_log = structlog.get_logger(__name__)

SENDER = "orchestrator"

Unsendable = Callable[[ExecutionId, DispatchStep, StepFault], None]


class Outbound:
    def __init__(
        self,
        *,
        bus: MessageBus,
        clock: Clock,
        ids: UlidSource,
        shards: int,
        pools: Pools,
        replica: str,
        unsendable: Unsendable,
    ) -> None:
        self._bus = bus
        self._pools = pools
        self._clock = clock
        self._ids = ids
        self._shards = shards
        self._replica = replica
        self._unsendable = unsendable

    def step_message(self, state: ExecutionState, command: DispatchStep, *, again: bool = False) -> Message:
        """Not sealed: it may go back in a bundle. Raises `Rejected` for what no bus would take."""
        workflow = workflow_of(state)
        step_input, claims = parted(command.input)
        request = StepRequest(
            execution_id=state.execution,
            workflow=workflow.name,
            shard=shard_of(state.execution, self._shards),
            path=command.path,
            name=command.name,
            attempt=command.attempt,
            input=step_input,
            timeout_ms=command.timeout_ms,
            effect_key=f"{state.tenant}/{state.execution}/{command.path}",
            tool=command.tool,
            claims=tuple(claims),
            tool_digest=workflow.tools.get(command.tool or ""),
            in_doubt=command.in_doubt,
            owner=self._replica,
            workspace=state.workspace if command.tool is not None else None,
            again=again,
        )
        return self._message(state, workflow, command.agent, "request", payload_of(request, step_input))

    async def send_step(
        self,
        state: ExecutionState,
        command: DispatchStep,
        back: WayBack | None = None,
        message: Message | None = None,
    ) -> bool:
        """By the way `back` where that takes it, else by the mailbox. False is no loss: the sweeper tries again.

        `message` is what `step_message` made of it, where somebody had the time to ask before.
        """
        pool = self._pools.of(state.tenant, command.agent)
        try:
            message = message or self.step_message(state, command)
            if back is not None and command.straight and back.take(pool, command.agent, message):
                return True
            return await self._by_mailbox(state, command, message)
        except Rejected as error:
            return self._given_up(state, command, error)

    async def send_again(self, state: ExecutionState, command: DispatchStep) -> bool:
        """By the mailbox, whose stream drops what it has seen. What went straight it has not, and a worker that is not
        heard may be at it: whoever gets that says that this attempt is lost instead of beginning it."""
        try:
            return await self._by_mailbox(state, command, self.step_message(state, command, again=command.straight))
        except Rejected as error:
            return self._given_up(state, command, error)

    async def _by_mailbox(self, state: ExecutionState, command: DispatchStep, message: Message) -> bool:
        subject = subjects.agent_in(self._pools.of(state.tenant, command.agent), command.agent)
        return await self._publish(subject, sealed(message), f"{state.execution}/{command.path}#{command.attempt}")

    def _given_up(self, state: ExecutionState, command: DispatchStep, error: Rejected) -> bool:
        """Sending it again cannot help: the step has failed, and the workflow may route that."""
        self._unsendable(state.execution, command, StepFault("not_sendable", error.message))
        return False

    async def send_cancel(self, state: ExecutionState, command: CancelStep) -> None:
        """Best effort: a worker that does not hear it works for nobody, and its result is not listened to."""
        order = CancelSteps(state.execution, command.path, command.attempt)
        try:
            for pool in self._pools.all_of(state.tenant):
                await self._bus.broadcast(subjects.of_pool(subjects.WORKER_CONTROL, pool), msgspec.json.encode(order))
        except BusUnavailable as error:
            _log.info("cancel.unheard", execution=state.execution, path=command.path, reason=error.message)

    def _message(
        self, state: ExecutionState, workflow: WorkflowRef, to: str, kind: Kind, payload: msgspec.Raw | dict[str, Any]
    ) -> Message:
        message_id = self._ids.message()
        return unsealed(
            id=message_id,
            trace_id=state.trace,
            span_id=message_id[-16:].lower(),
            sender=SENDER,
            to=to,
            type=kind,
            payload=payload,
            metadata={"workflow_id": workflow.id, "execution_id": state.execution, "tenant_id": state.tenant},
            at_ms=self._clock.now_ms(),
        )

    async def _publish(self, subject: str, message: Message, dedup_id: str) -> bool:
        try:
            await self._bus.publish(subject, message, dedup_id=dedup_id, confirm=False)
        except BusUnavailable as error:
            _log.warning("bus.publish_failed", subject=subject, reason=error.message)
            return False
        return True


def workflow_of(state: ExecutionState) -> WorkflowRef:
    if state.workflow is None:
        raise Bug("An execution that never started has nothing to send.")
    return state.workflow
