"""Live events from a control plane, through cuts and restarts: each once, in order.

Reads the server-sent events of `/api/v1/stream` line by line and remembers the last number, from which it goes on.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing

import msgspec

from agentflow.clock import Clock
from agentflow.errors import Unavailable
from agentflow.sdk.models import LiveEvent
from agentflow.sdk.transport import Transport

_BACK_OFF_S = (0.1, 2.0)


async def watch(
    transport: Transport, clock: Clock, asked: dict[str, str | float], *, after: int | None, patience_s: float
) -> AsyncGenerator[LiveEvent, None]:
    """Without end. Only `patience_s` without any connection raises `Unavailable`."""
    pause_s, longest_s = _BACK_OFF_S
    heard_at_s = clock.monotonic_s()
    while True:
        parameters = asked if after is None else {**asked, "after": after}
        try:
            async with aclosing(transport.lines("/stream", parameters)) as lines:
                number, kind = after, ""
                async for line in lines:
                    heard_at_s, pause_s = clock.monotonic_s(), _BACK_OFF_S[0]
                    field, _, value = line.partition(": ")
                    if field == "id":
                        number = int(value)
                    elif field == "event":
                        kind = value
                    elif field == "data" and kind == "event":
                        yield msgspec.json.decode(value, type=LiveEvent)
                    elif not line:
                        after, kind = number, ""
        except Unavailable:
            if clock.monotonic_s() - heard_at_s > patience_s:
                raise
        await clock.sleep(pause_s)
        pause_s = min(pause_s * 2, longest_s)
