"""The SDK against a real HTTP server that answers what a test tells it to."""

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from agentflow.clock import ControlledClock
from agentflow.errors import AgentFlowError, Bug, Conflict, Invalid, NotFound, Problem, Unavailable
from agentflow.sdk import Client
from agentflow.sdk.errors import ControlPlaneAway, NotAgentFlow
from agentflow.testing import eventually

Answer = tuple[int, Any]  # a status, and a body: bytes as they are, anything else as JSON
CUT = (0, b"")  # no answer: the connection is closed, as when a process dies

STARTED = {"execution_id": "exec_1", "trace_id": "t", "status": "running"}
SUMMARY = {"id": "wf_1", "name": "support", "version": "1.0.0", "digest": "d", "planner": "fsm", "created_at": "now"}


class Server:
    """Answers each request with the next of the answers, the last one for ever, and remembers what was asked."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.asked: list[tuple[str, str, bytes]] = []
        self.headers: list[dict[str, str]] = []
        self.url = ""

    def next_answer(self) -> Answer:
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


def handler_for(server: Server) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            server.asked.append((self.command, self.path, body))
            server.headers.append(dict(self.headers))
            status, answer = server.next_answer()
            if (status, answer) == CUT:
                self.close_connection = True
                return
            content = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_POST = do_GET  # noqa: N815 - the standard library's own names

        def log_message(self, format: str, *values: Any) -> None:
            """Tests have no use for an access log."""

    return Handler


@pytest.fixture
def server() -> Iterator[Server]:
    told = Server()
    with ThreadingHTTPServer(("127.0.0.1", 0), handler_for(told)) as http:
        told.url = f"http://127.0.0.1:{http.server_port}"
        serving = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
        serving.start()
        yield told
        http.shutdown()
        serving.join()


def problem(status: int, code: str, **more: Any) -> Answer:
    return status, {"type": "", "title": "t", "status": status, "detail": "what", "code": code, "hint": "do", **more}


def event(version: int) -> dict[str, Any]:
    return {"version": version, "type": "step.scheduled.v1", "at": "2026-11-18T06:00:00.000Z", "data": {}}


@pytest.mark.parametrize(
    ("status", "family"),
    [(400, Invalid), (404, NotFound), (409, Conflict), (413, Invalid), (422, Invalid), (500, Bug), (503, Unavailable)],
)
async def test_problem_details_become_an_error_of_the_family_under_the_servers_code(
    server: Server, status: int, family: type[AgentFlowError]
) -> None:
    server.answers = [problem(status, "AF1234")]

    async with Client(server.url) as api:
        with pytest.raises(family) as caught:
            await api.workflow("support")

    assert (caught.value.code, caught.value.message, caught.value.hint) == ("AF1234", "what", "do")


async def test_every_problem_keeps_its_place(server: Server) -> None:
    server.answers = [problem(422, "AF1101", problems=[{"message": "unknown state", "line": 3, "column": 7}])]

    async with Client(server.url) as api:
        with pytest.raises(Invalid) as caught:
            await api.push_workflow("x")

    assert caught.value.problems == (Problem("unknown state", line=3, column=7),)


async def test_nobody_listening_is_unavailable_and_says_how_to_start_one() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

    async with Client(f"http://127.0.0.1:{port}") as api:
        with pytest.raises(ControlPlaneAway) as caught:
            await api.workflows()
        assert await api.ready() is False

    assert "af dev" in caught.value.hint


@pytest.mark.parametrize("answer", [(200, b"<html>"), (200, {"other": 1}), (404, b"<html>not here"), (200, b"\xff")])
async def test_another_server_at_that_address_is_told_as_such(server: Server, answer: Answer) -> None:
    server.answers = [answer]

    async with Client(server.url) as api:
        with pytest.raises(NotAgentFlow):
            await api.workflows()


async def test_a_proxy_without_a_control_plane_behind_it_is_unavailable(server: Server) -> None:
    server.answers = [(502, b"bad gateway")]

    async with Client(server.url) as api:
        with pytest.raises(ControlPlaneAway):
            await api.workflows()


async def test_pushing_says_whether_it_is_new(server: Server) -> None:
    server.answers = [(201, SUMMARY), (200, SUMMARY)]

    async with Client(server.url) as api:
        first, second = await api.push_workflow("kind: Workflow"), await api.push_workflow(b"{}", "application/json")

    assert (first.created, second.created) == (True, False)
    assert [asked[2] for asked in server.asked] == [b"kind: Workflow", b"{}"]
    assert [header["Content-Type"] for header in server.headers] == ["application/yaml", "application/json"]


async def test_a_reference_stays_one_part_of_the_path_whatever_it_holds(server: Server) -> None:
    server.answers = [(202, STARTED)]

    async with Client(server.url) as api:
        await api.execute("support@1.0.0", {"ticket": "x"})
        await api.execute("../executions?x", {})

    assert [asked[1] for asked in server.asked] == [
        "/api/v1/workflows/support@1.0.0/execute",
        "/api/v1/workflows/..%2Fexecutions%3Fx/execute",
    ]
    assert json.loads(server.asked[0][2]) == {"input": {"ticket": "x"}, "wait": False, "wait_s": 60}


async def test_only_what_was_asked_for_is_sent_as_a_filter(server: Server) -> None:
    server.answers = [(200, {"items": [], "total_count": 0})]

    async with Client(server.url) as api:
        await api.executions(status="failed", limit=5)

    assert server.asked[0][1] == "/api/v1/executions?limit=5&filter%5Bstatus%5D=failed"


async def test_proxies_of_the_environment_are_not_used(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
    server.answers = [(200, {"status": "ok"})]

    async with Client(server.url) as api:
        assert await api.ready() is True


async def test_following_goes_on_where_it_was_when_the_control_plane_restarts(server: Server) -> None:
    server.answers = [
        (200, {"items": [event(1), event(2)], "ended": False}),
        CUT,
        problem(503, "AF2002"),
        (200, {"items": [event(3)], "ended": False}),
        (200, {"items": [event(4)], "ended": True}),
    ]

    async with Client(server.url) as api:
        seen = [event.version async for event in api.follow("exec_1")]

    assert seen == [1, 2, 3, 4]
    assert [after_of(path) for _, path, _ in server.asked] == ["0", "2", "2", "2", "3"]


async def test_following_gives_up_when_its_patience_ends(server: Server) -> None:
    server.answers = [CUT]

    async with Client(server.url) as api:
        with pytest.raises(ControlPlaneAway):
            _ = [event async for event in api.follow("exec_1", patience_s=0.2)]

    assert len(server.asked) > 1


async def test_following_something_unknown_ends_at_once(server: Server) -> None:
    server.answers = [problem(404, "AF1003")]

    async with Client(server.url) as api:
        with pytest.raises(NotFound):
            _ = [event async for event in api.follow("exec_1")]

    assert len(server.asked) == 1


async def test_a_history_of_many_pages_is_read_to_its_end(server: Server) -> None:
    server.answers = [
        (200, {"items": [event(1), event(2)], "ended": False}),
        (200, {"items": [event(3)], "ended": True}),
        (200, {"items": [], "ended": True}),
    ]

    async with Client(server.url) as api:
        history = await api.history("exec_1")

    assert [event.version for event in history] == [1, 2, 3]
    assert [after_of(path) for _, path, _ in server.asked] == ["0", "2", "3"]


def after_of(path: str) -> str:
    return path.partition("after=")[2].partition("&")[0]


@pytest.mark.parametrize("trouble", [CUT, problem(503, "AF2002")])
async def test_what_only_reads_or_carries_a_key_is_sent_again(server: Server, trouble: Answer) -> None:
    server.answers = [trouble, trouble, (200, SUMMARY | {"definition": {}, "source": ""})]
    async with Client(server.url) as api:
        assert (await api.workflow("support")).name == "support"

        server.answers = [trouble, (200, STARTED)]
        assert (await api.execute("support", {}, key="mine")).execution_id == "exec_1"

    assert len(server.asked) == 5
    assert [headers.get("Idempotency-Key") for headers in server.headers[3:]] == ["mine", "mine"]


async def test_a_start_without_a_key_is_sent_once_because_it_may_have_been_taken(server: Server) -> None:
    server.answers = [CUT, (200, STARTED)]
    async with Client(server.url) as api:
        with pytest.raises(ControlPlaneAway):
            await api.execute("support", {})

    assert len(server.asked) == 1


async def test_no_more_is_sent_than_the_caller_allows(server: Server) -> None:
    server.answers = [problem(503, "AF2002")]
    async with Client(server.url, retries=0) as api:
        with pytest.raises(Unavailable):
            await api.workflow("support")

    assert len(server.asked) == 1


async def test_who_is_told_to_slow_down_does(server: Server) -> None:
    clock = ControlledClock()
    server.answers = [problem(429, "AF1702"), (200, STARTED)]
    async with Client(server.url, clock=clock) as api:
        waiting = asyncio.create_task(api.execute("support", {}))
        await eventually(lambda: len(server.asked) == 1 and clock._sleepers)
        await clock.advance(1.0)
        assert (await waiting).execution_id == "exec_1"

    assert len(server.asked) == 2
