"""The REST application: routes, error answers and the guards in front of them."""

from fastapi import FastAPI

from agentflow import limits
from control_plane.api import agents, errors, executions, health, orders, schedules, tools, workflows
from control_plane.api.guards import Guards
from control_plane.api.shortcut import Shortcut
from control_plane.service import ControlPlane


def create_api(control_plane: ControlPlane, version: str) -> FastAPI:
    app = FastAPI(
        title="AgentFlow",
        version=version,
        openapi_url="/api/v1/openapi.json",
        docs_url=None,  # its page loads scripts from elsewhere
        redoc_url=None,
    )
    app.state.control_plane = control_plane
    errors.install(app)
    app.add_middleware(Shortcut)  # the first is the innermost: whoever takes it has passed every guard
    app.add_middleware(Guards, body_bytes_max=limits.REQUEST_BYTES_MAX)
    for noun in (workflows, executions, orders, schedules, tools, agents, health):
        app.include_router(noun.router)
    return app
