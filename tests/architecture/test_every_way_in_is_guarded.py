"""A route or method that says nothing about who may use it fails here, before anybody finds it."""

from typing import Any, cast

import pytest
from fastapi import FastAPI, WebSocket

from agentflow.errors import Bug
from agentflow.v1 import agentflow_pb2 as pb
from control_plane.api.app import routes
from control_plane.api.guard import ensure_guarded, guarded_router, needs, permissions_of
from control_plane.identity.permissions import Permission
from control_plane.rpc import guard as rpc_guard
from control_plane.service import ControlPlane

PUBLIC = {
    ("GET", "/healthz"),
    ("GET", "/readyz"),
    ("GET", "/.well-known/jwks.json"),
    ("POST", "/api/v1/auth/token"),
}


def api() -> FastAPI:
    return routes(cast(ControlPlane, None), "test")


def test_every_route_names_its_permission_and_only_these_are_open_to_everybody():
    declared = permissions_of(api())

    assert len(declared) > 20
    assert {operation for operation, permission in declared.items() if permission is None} == PUBLIC


def test_every_route_is_in_the_document_but_for_the_document_itself_and_the_socket():
    app = api()
    described = {(method.upper(), path) for path, methods in app.openapi()["paths"].items() for method in methods}

    there = {(method, path.replace(":path}", "}")) for method, path in permissions_of(app)}

    assert there - described == {("GET", "/api/v1/openapi.json"), ("WEBSOCKET", "/api/v1/ws")}
    assert described - there == set()


def test_a_route_without_a_permission_cannot_even_be_declared():
    router = guarded_router()

    with pytest.raises(Bug, match="says nothing about who may use it"):

        @router.get("/api/v1/forgotten")
        async def forgotten() -> dict[str, Any]:
            return {}


def test_a_route_that_came_past_the_guard_is_found():
    app = api()

    @app.get("/api/v1/sneaked-in", tags=["sneaky"])
    async def sneaked_in() -> dict[str, Any]:
        return {}

    with pytest.raises(Bug, match="sneaked-in is not guarded"):
        ensure_guarded(app)

    app = api()
    app.mount("/files", FastAPI())
    with pytest.raises(Bug, match="not guarded"):
        ensure_guarded(app)


def test_a_route_about_a_thing_that_nobody_can_find_an_owner_of_is_found():
    app, router = api(), guarded_router(tags=["gadgets"])

    @router.post("/api/v1/gadgets/{gadget}", responses={422: {"description": "Wrong."}})
    @needs(Permission.EXECUTIONS_READ)
    async def change(gadget: str) -> dict[str, Any]:
        return {}

    app.include_router(router)
    with pytest.raises(Bug, match="Nobody can tell whose"):
        ensure_guarded(app)


def test_a_socket_without_a_permission_is_found():
    app, router = api(), guarded_router()

    @router.websocket("/api/v1/open")
    async def forgotten(socket: WebSocket) -> None: ...

    app.include_router(router)
    with pytest.raises(Bug, match="says nothing about who may use it"):
        ensure_guarded(app)


def test_a_socket_with_a_permission_is_listed():
    app, router = api(), guarded_router()

    @router.websocket("/api/v1/feed")
    @needs(Permission.EXECUTIONS_READ)
    async def feed(socket: WebSocket) -> None: ...

    app.include_router(router)
    assert permissions_of(app)["WEBSOCKET", "/api/v1/feed"] is Permission.EXECUTIONS_READ


def test_every_method_of_every_grpc_service_names_its_permission():
    methods = {
        f"/{service.full_name}/{method.name}"
        for service in pb.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    }

    assert methods - set(rpc_guard.PERMISSIONS) == set(), "who may call these?"
    assert {method for method in rpc_guard.PERMISSIONS if method.startswith("/agentflow.v1.")} - methods == set()
