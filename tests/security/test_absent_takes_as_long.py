"""What belongs to another tenant is looked for exactly as what is nowhere: the time of a 404 tells nobody what exists.

Seconds would measure the machine. The statements that an answer costs are counted instead, by the id of its request.
"""

import asyncio
import itertools
import re
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pytest
import structlog
from sqlalchemy import event
from sqlalchemy.engine import Engine

from agentflow.devstack.nats import NatsServer
from control_plane.api.app import routes
from control_plane.api.guard import permissions_of
from control_plane.identity.permissions import Permission
from control_plane.service import ControlPlane
from control_plane.wiring import control_plane
from tests.security.two_tenants import BODIES, TwoTenants
from tests.served_plane import plane_settings, served

OF_TENANTS = sorted(
    (method, path)
    for (method, path), needed in permissions_of(routes(cast(ControlPlane, None), "test")).items()
    if method != "WEBSOCKET" and "{" in path and needed not in (None, Permission.TENANTS_MANAGE)
)
TRIES = 3  # who asks, and what their tenant may, is read again every few seconds, in one request or the other


@pytest.fixture
def asked() -> Iterator[dict[str, list[str]]]:
    """The statements that each request made the database execute, as they are without their values."""
    seen: dict[str, list[str]] = defaultdict(list)

    def heard(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        seen[structlog.contextvars.get_contextvars().get("request_id", "")].append(statement)

    event.listen(Engine, "before_cursor_execute", heard)
    try:
        yield seen
    finally:
        event.remove(Engine, "before_cursor_execute", heard)


def elsewhere(name: str) -> str:
    """A name of the same kind and length that nobody has."""
    return re.sub(r"\w{4,6}$", lambda end: end[0][::-1], name)


async def test_what_is_anothers_costs_the_database_the_same_as_what_is_nowhere(
    asked: dict[str, list[str]], nats: NatsServer, database_dsn: str, tmp_path: Path
) -> None:
    async with control_plane(plane_settings(tmp_path, nats.url, database_dsn)) as behind, served(behind) as port:
        key = (tmp_path / "admin.key").read_text().strip()
        world = await asyncio.to_thread(TwoTenants, f"http://127.0.0.1:{port}", key)
        with closing(world.http):
            number, looked = itertools.count(), 0
            nowhere = {kind: elsewhere(name) for kind, name in world.names.items()}

            async def cost(names: dict[str, str], method: str, template: str) -> list[str]:
                path = re.sub(r"{(\w+)(?::path)?}", lambda match: names.get(match[1], "1"), template)
                body, request = None if method == "GET" else BODIES.get(template, {}), f"asked-{next(number)}"
                headers = {"X-Request-Id": request}
                answer = await asyncio.to_thread(world.call, world.theirs, method, path, body, headers=headers)
                assert answer.status_code == 404, (method, path, answer.text)
                return asked[request]

            for method, template in OF_TENANTS:
                for _ in range(TRIES):
                    theirs, none = await cost(world.names, method, template), await cost(nowhere, method, template)
                    if theirs == none:
                        break
                assert theirs == none, (method, template)
                looked += bool(theirs)

    assert looked > len(OF_TENANTS) / 2, "most are looked for in the database, by whoever asks"
