"""Stopping in good order: Ctrl-C, a closed terminal and a supervisor's SIGTERM all let the clean-up complete."""

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any

from agentflow.cli.output import stderr

_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


async def until_interrupted(work: Coroutine[Any, Any, None]) -> bool:
    """Perform `work`; whether it was asked to stop before it was done. A second request does not cut the clean-up."""
    performing = asyncio.create_task(work)
    loop = asyncio.get_running_loop()
    interrupted = False

    def stop() -> None:
        nonlocal interrupted
        if not interrupted:
            interrupted = True
            stderr().print("stopping …", style="dim")
            performing.cancel()

    for number in _STOPPING:
        loop.add_signal_handler(number, stop)
    try:
        await performing
    except asyncio.CancelledError:
        if not interrupted:
            raise
    finally:
        for number in _STOPPING:
            loop.remove_signal_handler(number)
    return interrupted
