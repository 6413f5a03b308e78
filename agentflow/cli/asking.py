"""One question to the control plane, from a command that has no loop of its own."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentflow.sdk.client import Client


def ask(question: "Callable[[Client], Awaitable[Any]]") -> Any:
    async def run() -> Any:
        from agentflow.cli.connection import control_plane

        async with control_plane() as api:
            return await question(api)

    return asyncio.run(run())
