"""The REST application: routes, error answers, and what stands in front of them."""

from typing import Any

from fastapi import FastAPI
from starlette.types import ASGIApp

from agentflow import limits
from control_plane.api import (
    agents,
    audit,
    auth,
    budgets,
    costs,
    deployments,
    document,
    errors,
    executions,
    forks,
    health,
    jobs,
    live,
    looking_back,
    moves,
    orders,
    people,
    plans,
    platform,
    replays,
    schedules,
    snapshots,
    status,
    tasks,
    tenants,
    tools,
    traces,
    workflows,
)
from control_plane.api.answers import problem_answer
from control_plane.api.examples import give_examples
from control_plane.api.exchange import Exchange
from control_plane.api.guard import ensure_guarded
from control_plane.api.host_and_size import Guards
from control_plane.api.shortcut import Shortcut
from control_plane.service import ControlPlane

_ABOUT = """Durable workflows for agents.

Every error is problem details (RFC 9457) with a `code`, a `hint` and, where the input is wrong, every fault with its
place. Lists take `filter[field]=`, `sort=`, `limit=` and the `cursor` of the page before. Every GET has a strong `ETag`
and knows `If-None-Match`; writes to an execution know `If-Match`. A POST with an `Idempotency-Key` can be sent again.
`X-Request-Id` is echoed and is in the logs."""


def create_api(control_plane: ControlPlane, version: str, *, any_host: bool = False) -> ASGIApp:
    # Outside of everything, so that the answer to a fault of ours has its request id as well.
    return Exchange(routes(control_plane, version, any_host=any_host), control_plane.new_request_id)


def routes(control_plane: ControlPlane, version: str, *, any_host: bool = False) -> FastAPI:
    app = FastAPI(
        title="AgentFlow",
        version=version,
        description=_ABOUT,
        openapi_url=None,  # `document` serves it, to whoever may ask for anything at all
        docs_url=None,  # its page loads scripts from elsewhere
        redoc_url=None,
        generate_unique_id_function=lambda route: f"{route.tags[0]}.{route.name}",
    )
    app.state.control_plane = control_plane
    errors.install(app)
    app.add_middleware(Shortcut)  # the first is the innermost: whoever takes it has passed every guard
    app.add_middleware(Guards, body_bytes_max=limits.REQUEST_BYTES_MAX, any_host=any_host)
    for noun in (
        auth,
        people,
        tenants,
        workflows,
        replays,
        deployments,
        jobs,
        executions,
        looking_back,
        orders,
        moves,
        traces,
        forks,
        snapshots,
        schedules,
        tasks,
        tools,
        agents,
        audit,
        costs,
        budgets,
        plans,
        live,
        status,
        platform,
        health,
        document,
    ):
        app.include_router(noun.router)
    ensure_guarded(app)
    _describe(app)
    return app


def _describe(app: FastAPI) -> None:
    """The document as FastAPI makes it, with the one shape that every error has, and an example of every body."""
    made = app.openapi

    def openapi() -> dict[str, Any]:
        document = made()
        shapes = document.setdefault("components", {}).setdefault("schemas", {})
        shapes.setdefault("ProblemDetails", errors.ProblemDetails.model_json_schema())
        for unused in ("HTTPValidationError", "ValidationError"):
            shapes.pop(unused, None)
        for operations in document["paths"].values():
            for operation in operations.values():
                wrong = operation["responses"].get("422", {}).get("content", {})
                if "application/json" in wrong:  # FastAPI's own idea of what a wrong request is answered with
                    operation["responses"]["422"] = problem_answer(422)
        give_examples(document)
        return document

    app.openapi = openapi  # type: ignore[method-assign]
