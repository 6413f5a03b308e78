"""Brings workers' results from the bus into the inbox, and acks them once they are committed."""

from collections.abc import Callable

import msgspec
import structlog

from agentflow.contracts.claims import joined
from agentflow.contracts.step import StepResult
from agentflow.errors import AgentFlowError
from agentflow.execution.messages import Stamp, StepReported
from agentflow.execution.state import ExecutionState
from agentflow.ports import Delivery
from control_plane.orchestrator.children import UnknownExecution
from control_plane.orchestrator.inbox import Arrival, Inbox

_log = structlog.get_logger(__name__)

_TRY_AGAIN_S = 1.0


class Results:
    def __init__(self, inbox: Inbox, stamp: Callable[[], Stamp]) -> None:
        self._inbox = inbox
        self._stamp = stamp

    def receive(self, delivery: Delivery) -> None:
        try:
            result = delivery.message.read(StepResult)
            output = joined(result.output, result.claims)
        except (msgspec.DecodeError, UnicodeDecodeError, LookupError, TypeError) as error:
            _log.error("result.refused", message=delivery.message.id, sender=delivery.message.sender, reason=str(error))
            delivery.ack()  # it will not become readable by coming again
            return
        reported = StepReported(
            stamp=self._stamp(),
            path=result.path,
            attempt=result.attempt,
            worker=result.worker,
            started_at_ms=result.started_at_ms,
            finished_at_ms=result.finished_at_ms,
            output=output,
            fault=result.fault,
        )

        def settled(_: ExecutionState) -> None:
            delivery.ack()

        def refused(error: AgentFlowError) -> None:
            if isinstance(error, UnknownExecution):
                delivery.ack()
            else:
                delivery.nak(_TRY_AGAIN_S)

        self._inbox.put(Arrival(result.execution_id, reported, settled, refused, pool=delivery.pool))
