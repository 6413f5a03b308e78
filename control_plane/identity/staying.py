"""What stays open (WebSockets, server-sent events, gRPC streams) is closed once its reader may not have it any more.

Rights that change are told at once (`Authenticator.forget`); what nobody told is found within `CREDENTIAL_RECHECK_S`.
"""

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import suppress
from typing import TypeVar

from agentflow.errors import AgentFlowError, Unavailable
from agentflow.limits import CREDENTIAL_RECHECK_S, CREDENTIAL_SPREAD_S
from control_plane.identity.authentication import Authenticator
from control_plane.identity.permissions import Permission

T = TypeVar("T")


async def loss_of(authenticator: Authenticator, presented: str, permission: Permission) -> AgentFlowError:
    """Returns when what a credential proved is not true any more, with the reason."""
    while True:
        change = authenticator.change
        try:
            (await authenticator.authenticate(presented)).require(permission)
        except Unavailable:
            pass  # nobody can tell now; it was true before
        except AgentFlowError as lost:
            return lost
        with suppress(TimeoutError):
            async with asyncio.timeout(CREDENTIAL_RECHECK_S):
                await change.wait()
                # A thousand connections hear of the same change: they do not all ask the database in one moment.
                await asyncio.sleep(random.random() * CREDENTIAL_SPREAD_S)  # noqa: S311 - not a secret


async def while_allowed(
    items: AsyncIterator[T], authenticator: Authenticator, presented: str, permission: Permission
) -> AsyncGenerator[T, None]:
    """The items as they come. Raises what was lost, also while there is nothing to come."""
    reader: asyncio.Task[object] | None = None  # whoever waits for the next item

    def lose(_: asyncio.Task[AgentFlowError]) -> None:
        if reader is not None:
            reader.cancel()

    watching = asyncio.create_task(loss_of(authenticator, presented, permission))
    watching.add_done_callback(lose)
    try:
        while not watching.done():
            reader = asyncio.current_task()
            try:
                item = await anext(items)
            except StopAsyncIteration:
                return
            except asyncio.CancelledError:
                if not watching.done() or reader is None:
                    raise  # somebody else's wish
                reader.uncancel()
                break
            finally:
                reader = None
            yield item
        raise watching.result()
    finally:
        watching.remove_done_callback(lose)
        watching.cancel()
