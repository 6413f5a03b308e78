"""The busiest route, past the framework: starting an execution.

Innermost of the layers, so guards have seen the request; who asks is proved here as on every route. FastAPI's own way
to the same function (routes, dependencies, validation of the answer) takes several times as long as starting an
execution does; it stays declared there, for the document and for whatever this layer does not know.
"""

import re

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from control_plane.api import workflows
from control_plane.api.guard import attended
from control_plane.api.request import control_plane_of, key_of, tenant_of
from control_plane.identity.permissions import Permission

_TEMPLATE = "/api/v1/workflows/{reference}/execute"
_EXECUTE = re.compile(r"/api/v1/workflows/([^/]+)/execute")


class Shortcut:
    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        taken = _EXECUTE.fullmatch(scope["path"]) if scope["type"] == "http" and scope["method"] == "POST" else None
        if taken is None:
            await self._app(scope, receive, send)
            return
        scope["path_params"] = {"reference": taken[1]}
        request = Request(scope, receive)
        answer = await attended(request, Permission.WORKFLOWS_EXECUTE, "workflows.execute", _TEMPLATE, _started)
        await answer(scope, receive, send)


async def _started(request: Request) -> Response:
    return await workflows.started(request, await control_plane_of(request), await tenant_of(request), key_of(request))
