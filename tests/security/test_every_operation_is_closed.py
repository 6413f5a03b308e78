"""Every operation of every way in, with every bad credential: 401, 403 or 404, and nothing else.

The operations are read from the application itself, so a new one is covered by being there. Each is first shown to let
its permission in (anything but 401 and 403), so that the refusals mean something.
"""

import asyncio
import base64
import hashlib
import hmac
import json
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import grpc
import jwt
import pytest
import websockets
from websockets.exceptions import InvalidStatus

from agentflow.devstack.platform import EmbeddedPlatform, embedded_platform
from agentflow.encryption.field import Place, unseal
from agentflow.encryption.signing import new_key_pair
from agentflow.v1 import agentflow_pb2 as pb
from control_plane.api.app import routes
from control_plane.api.guard import permissions_of
from control_plane.identity.local_ring import local_ring
from control_plane.identity.permissions import BUILT_IN, Permission
from control_plane.rpc.guard import PERMISSIONS
from control_plane.service import ControlPlane
from tests.security.two_tenants import BODIES, TwoTenants

ROOT = Path(__file__).parents[2]
OPERATIONS = permissions_of(routes(cast(ControlPlane, None), "test"))
GUARDED = sorted((method, path) for (method, path), needed in OPERATIONS.items() if needed is not None)
HTTP = [operation for operation in GUARDED if operation[0] != "WEBSOCKET"]
OUR_METHODS = [method for method in sorted(PERMISSIONS) if method.startswith("/agentflow.v1.")]
SOCKETS = [path for method, path in GUARDED if method == "WEBSOCKET"]


class World(TwoTenants):
    """A whole platform of them."""

    def __init__(self, platform: EmbeddedPlatform) -> None:
        super().__init__(platform.api_url, platform.api_key)
        self.platform = platform
        ready = re.findall(r'"grpc": *"([^"]+)"', platform.control_plane.log.read_text())
        self.grpc_address = ready[-1]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    home = tmp_path_factory.mktemp("closed") / "home"
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        running = embedded_platform(home, agents_file=ROOT / "templates" / "support" / "agents.yaml")
        platform = runner.run(running.__aenter__())
        world = World(platform)
        try:
            yield world
        finally:
            world.http.close()
            runner.run(running.__aexit__(None, None, None))


def part(value: Any) -> str:
    raw = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def our_signing_key(platform: EmbeddedPlatform, kid: str) -> bytes:
    """What only whoever owns the machine can read: with it, a forgery differs from a good token in one claim only."""
    home = platform.control_plane.log.parent.parent
    with closing(sqlite3.connect(home / "agentflow.db")) as db:
        (sealed,) = db.execute("SELECT private_sealed FROM signing_keys WHERE id = ?", (kid,)).fetchone()
    return unseal(local_ring(home / "identity.key"), Place("", "signing_keys.private_sealed", kid), sealed)


@pytest.fixture(scope="module")
def bad(world: World) -> dict[str, str | None]:
    """Each differs from a good token of `ours` in one thing."""
    token = world.made(world.ours, "/api/v1/auth/token", {"grant_type": "api_key", "api_key": world.ours})
    good: str = token["access_token"]
    assert world.call(good, "GET", "/api/v1/auth/whoami").status_code == 200
    header, claims = jwt.get_unverified_header(good), jwt.decode(good, options={"verify_signature": False})
    jwk = world.http.get("/.well-known/jwks.json").json()["keys"][0]
    first, _, last = good.split(".")
    ours = our_signing_key(world.platform, header["kid"])

    def signed(changes: dict[str, Any], *, key: bytes = ours, **headers: Any) -> str:
        return jwt.encode({**claims, **changes}, key, algorithm="EdDSA", headers={**header, **headers})

    assert world.call(signed({"jti": "tok_of_our_own_making"}), "GET", "/api/v1/auth/whoami").status_code == 200

    def symmetric(secret: bytes) -> str:
        head = f"{part({**header, 'alg': 'HS256'})}.{part(claims)}"
        return f"{head}.{part(hmac.new(secret, head.encode(), hashlib.sha256).digest())}"

    ended = world.made(world.ours, "/api/v1/auth/token", {"grant_type": "api_key", "api_key": world.ours})
    assert world.call(ended["access_token"], "POST", "/api/v1/auth/logout").status_code == 200
    revoked = world.made(world.ours, "/api/v1/api-keys", {"name": "revoked"})
    assert world.call(world.ours, "DELETE", f"/api/v1/api-keys/{revoked['id']}").status_code == 204
    return {
        "no credential": None,
        "nonsense": "nonsense",
        "alg none": f"{part({**header, 'alg': 'none'})}.{part(claims)}.",
        "HS256 with the public key": symmetric(base64.urlsafe_b64decode(jwk["x"] + "=")),
        "HS256 with the JWK": symmetric(json.dumps(jwk).encode()),
        "signed by another key": signed({}, key=new_key_pair().private_pem),
        "wrong kid": signed({}, kid="another"),
        "wrong audience": signed({"aud": "another"}),
        "wrong issuer": signed({"iss": "another"}),
        "for ever": signed({"exp": 4_000_000_000}),
        "of nobody": signed({"sub": "usr_nobody"}),
        "of somebody in another tenant": signed({"tenant": "theirs"}),
        "expired": signed({"iat": 1_600_000_000, "exp": 1_600_000_060}),
        "another tenant written in": ".".join([first, part({**claims, "tenant": "theirs"}), last]),
        "logged out": ended["access_token"],
        "revoked key": revoked["key"],
        "key with a wrong secret": world.ours[:-4] + "aaaa",
    }


@pytest.mark.parametrize(("method", "template"), HTTP, ids=lambda value: value)
def test_no_bad_credential_gets_anything_out_of_an_operation(
    world: World, bad: dict[str, str | None], method: str, template: str
) -> None:
    for name, bearer in bad.items():
        answer = world.call(bearer, method, world.path(template), {})

        assert answer.status_code == 401, (name, answer.text)
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["code"] in ("AF1703", "AF1704"), name


@pytest.mark.parametrize(("method", "template"), HTTP, ids=lambda value: value)
def test_a_role_without_the_permission_is_refused_and_one_with_it_is_not(
    world: World, method: str, template: str
) -> None:
    needed = OPERATIONS[method, template]
    assert needed is not None
    for role, permissions in BUILT_IN.items():
        held = needed is Permission.SELF or (needed in permissions and needed is not Permission.TENANTS_MANAGE)
        if held and (method == "DELETE" or template.endswith(("/logout", "/stream"))):
            continue  # it would do what it says
        answer = world.call(world.roles[role], method, world.path(template), None if method == "GET" else {})

        assert (answer.status_code == 403) == (not held), (role, answer.status_code, answer.text)
        assert answer.status_code != 401


@pytest.mark.parametrize(
    ("method", "template"), [(method, path) for method, path in HTTP if "{" in path], ids=lambda value: value
)
def test_what_is_anothers_is_not_there(world: World, method: str, template: str) -> None:
    """Whether the request would be right or wrong: what is wrong with it is told to who may see the thing."""
    invented = re.sub(r"{\w+(?::path)?}", "nowhere", template.replace("{version}", "1"))
    for query, body in (("", BODIES.get(template, {})), ("?limit=none&after=none", {"no such field": [[[]]]}), ("", 7)):
        sent = None if method == "GET" else body
        answer = world.call(world.theirs, method, world.path(template) + query, sent)
        nowhere = world.call(world.theirs, method, invented + query, sent)

        if OPERATIONS[method, template] is Permission.TENANTS_MANAGE:
            assert answer.status_code == 403
            return
        assert answer.status_code == 404, answer.text
        assert (answer.status_code, answer.json()["code"]) == (nowhere.status_code, nowhere.json()["code"])


LISTS = [path for method, path in HTTP if method == "GET" and "{" not in path]


@pytest.mark.parametrize("path", [path for path in LISTS if not path.endswith(("/stream", "/openapi.json"))])
def test_lists_hold_nothing_of_another_tenant(world: World, path: str) -> None:
    ours = world.call(world.ours, "GET", path)
    answer = world.call(world.theirs, "GET", path)

    assert answer.status_code in (200, 403)
    for name in (world.names["execution"], world.names["user"], world.names["key"], "mine.echo", '"mine"'):
        assert name not in answer.text, path
    if "executions" in path:
        assert world.names["execution"] in ours.text  # so that its absence means something


@pytest.mark.parametrize("path", SOCKETS)
async def test_no_bad_credential_opens_a_socket(world: World, bad: dict[str, str | None], path: str) -> None:
    url = world.platform.api_url.replace("http://", "ws://") + path
    refused = {**bad, "a role without the permission": world.roles["worker"]}
    for name, bearer in refused.items():
        headers = {} if bearer is None else {"Authorization": f"Bearer {bearer}"}
        with pytest.raises(InvalidStatus) as seen:
            async with websockets.connect(url, proxy=None, additional_headers=headers):
                pass
        assert seen.value.response.status_code in (401, 403), name
    async with websockets.connect(url, proxy=None, additional_headers={"Authorization": f"Bearer {world.ours}"}):
        pass


@pytest.mark.parametrize("method", OUR_METHODS)
async def test_no_bad_credential_calls_a_grpc_method(world: World, bad: dict[str, str | None], method: str) -> None:
    service, name = method.strip("/").split("/")
    described = pb.DESCRIPTOR.pool.FindServiceByName(service).methods_by_name[name]
    refused = {**bad, "a role without the permission": world.roles["worker"]}
    async with grpc.aio.insecure_channel(world.grpc_address) as channel:
        kind = channel.unary_stream if described.server_streaming else channel.unary_unary
        call = kind(method, request_serializer=lambda raw: raw, response_deserializer=lambda raw: raw)
        for reason, bearer in refused.items():
            metadata = () if bearer is None else (("authorization", f"Bearer {bearer}"),)
            answered = call(b"", metadata=metadata, timeout=20)
            with pytest.raises(grpc.aio.AioRpcError) as seen:
                await (answered.read() if described.server_streaming else answered)
            expected = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)
            assert seen.value.code() in expected, (reason, seen.value)


def of_grpc(world: World, channel: grpc.aio.Channel, method: str, bearer: str, request: bytes = b"") -> Any:
    """The status that a call of a method ends with; OK also for a stream that begins."""
    service, name = method.strip("/").split("/")
    described = pb.DESCRIPTOR.pool.FindServiceByName(service).methods_by_name[name]
    kind = channel.unary_stream if described.server_streaming else channel.unary_unary
    call = kind(method, request_serializer=lambda raw: raw, response_deserializer=lambda raw: raw)
    answered = call(request, metadata=(("authorization", f"Bearer {bearer}"),), timeout=20)

    async def ended() -> grpc.StatusCode:
        try:
            await (answered.read() if described.server_streaming else answered)
        except grpc.aio.AioRpcError as error:
            return error.code()
        answered.cancel()
        return grpc.StatusCode.OK

    return ended()


@pytest.mark.parametrize("method", OUR_METHODS)
async def test_over_grpc_a_role_without_the_permission_is_refused_and_one_with_it_is_not(
    world: World, method: str
) -> None:
    async with grpc.aio.insecure_channel(world.grpc_address) as channel:
        for role, permissions in BUILT_IN.items():
            status = await of_grpc(world, channel, method, world.roles[role])

            assert (status is grpc.StatusCode.PERMISSION_DENIED) == (PERMISSIONS[method] not in permissions), role
            assert status is not grpc.StatusCode.UNAUTHENTICATED


def ours_over_grpc(world: World) -> dict[str, Any]:
    """A request about something of `ours`, for every method that is about one thing."""
    execution = world.names["execution"]
    of_executions, of_workflows = "/agentflow.v1.ExecutionService/", "/agentflow.v1.WorkflowService/"
    return {
        f"{of_executions}Get": pb.GetRequest(id=execution),
        f"{of_executions}Watch": pb.WatchRequest(execution=execution, after=0),
        f"{of_executions}Pause": pb.PauseRequest(execution=execution),
        f"{of_executions}Resume": pb.ResumeRequest(execution=execution),
        f"{of_executions}Retry": pb.RetryRequest(execution=execution),
        f"{of_workflows}Get": pb.WorkflowServiceGetRequest(reference="mine"),
        f"{of_workflows}Execute": pb.ExecuteRequest(workflow="mine"),
        f"{of_workflows}ExecuteStream": pb.ExecuteStreamRequest(workflow="mine"),
        f"{of_workflows}Signal": pb.SignalRequest(execution=execution, name="go"),
        f"{of_workflows}Cancel": pb.CancelRequest(execution=execution),
        "/agentflow.v1.ToolService/Get": pb.ToolServiceGetRequest(reference="mine.echo"),
        "/agentflow.v1.ToolService/Test": pb.TestRequest(reference="mine.echo"),
    }


async def test_over_grpc_what_is_anothers_is_not_there(world: World) -> None:
    asked = ours_over_grpc(world)
    about_none = {method for method in OUR_METHODS if method.endswith(("/List", "/Register"))}
    about_agents = {"/agentflow.v1.AgentService/Get"}  # tests/e2e/test_agents_of_tenants.py
    assert set(OUR_METHODS) - about_none - about_agents == set(asked), "ask for something of ours by the new method"
    async with grpc.aio.insecure_channel(world.grpc_address) as channel:
        for method, request in asked.items():
            status = await of_grpc(world, channel, method, world.theirs, request.SerializeToString())
            assert status is grpc.StatusCode.NOT_FOUND, method
        get = "/agentflow.v1.ExecutionService/Get"
        assert await of_grpc(world, channel, get, world.ours, asked[get].SerializeToString()) is grpc.StatusCode.OK
        for method in (method for method in OUR_METHODS if method.endswith("/List")):
            listed = channel.unary_unary(method, request_serializer=bytes, response_deserializer=bytes)
            raw = await listed(b"", metadata=(("authorization", f"Bearer {world.theirs}"),))
            assert world.names["execution"].encode() not in raw
            assert b"mine" not in raw


async def test_the_services_describe_themselves_to_nobody_without_a_credential(world: World) -> None:
    async with grpc.aio.insecure_channel(world.grpc_address) as channel:
        call = channel.stream_stream("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo")
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await call(iter([b""])).read()

    assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
