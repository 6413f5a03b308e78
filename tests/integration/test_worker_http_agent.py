"""The http agent against a real HTTP server on loopback."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec
import pytest

from agentflow.contracts.step import StepFault, StepRequest
from worker.agents.agent import StepContext
from worker.agents.http import HttpAgent
from worker.outcome import StepFailed

REQUEST = StepRequest(
    execution_id="exec_1",
    workflow="support",
    shard=0,
    path="notify~2",
    name="notify",
    attempt=3,
    input={"text": "grüße"},
    timeout_ms=1_000,
    effect_key="default/exec_1/notify~2",
)
CONTEXT = StepContext("exec_1", "notify", 3, "default/exec_1/notify~2", 0)

BODY_BYTES_MAX = 512 * 1024


class Heard:
    def __init__(self, head: str, body: bytes) -> None:
        self.start, *lines = head.split("\r\n")
        self.headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        self.body = body


@asynccontextmanager
async def server(answer: Callable[[Heard], bytes | None]) -> AsyncIterator[tuple[str, list[Heard]]]:
    """Speaks just enough HTTP; an answer of None keeps the line open and says nothing."""
    heard: list[Heard] = []
    closing = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().rstrip("\r\n")
        question = Heard(head, b"")
        question.body = await reader.readexactly(int(question.headers["content-length"]))
        heard.append(question)
        reply = answer(question)
        if reply is None:
            await closing.wait()
        else:
            writer.write(reply)
            await writer.drain()
        writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}/hook", heard
    finally:
        closing.set()
        listening.close()
        await listening.wait_closed()


def reply(status: int, body: bytes = b"", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}", "Connection: close", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


@asynccontextmanager
async def agent_at(url: str, *, timeout_s: float = 5.0, **headers: str) -> AsyncIterator[HttpAgent]:
    agent = HttpAgent(url, timeout_s=timeout_s, headers=headers, concurrency=4, body_bytes_max=BODY_BYTES_MAX)
    try:
        yield agent
    finally:
        await agent.close()


async def fault_from(answer: Callable[[Heard], bytes | None], *, timeout_s: float = 5.0) -> StepFault:
    async with server(answer) as (url, _), agent_at(url, timeout_s=timeout_s) as agent:
        with pytest.raises(StepFailed) as caught:
            await agent.run(REQUEST, CONTEXT)
    return caught.value.fault


async def test_a_step_is_one_post_with_its_input_its_identity_and_an_idempotency_key():
    async with (
        server(lambda _: reply(200, b'{"ok": [1, 2]}')) as (url, heard),
        agent_at(url, **{"X-Team": "support"}) as agent,
    ):
        output = await agent.run(REQUEST, CONTEXT)

    assert output == {"ok": [1, 2]}
    (question,) = heard
    assert question.start == "POST /hook HTTP/1.1"
    assert question.headers["content-type"] == "application/json"
    assert question.headers["idempotency-key"] == "default/exec_1/notify~2"
    assert question.headers["x-team"] == "support"
    assert msgspec.json.decode(question.body) == {
        "input": {"text": "grüße"},
        "execution_id": "exec_1",
        "step": "notify",
        "attempt": 3,
    }


@pytest.mark.parametrize(("status", "body", "output"), [(204, b"", None), (201, b"3", 3), (202, b'"later"', "later")])
async def test_every_2xx_is_a_success(status, body, output):
    async with server(lambda _: reply(status, body)) as (url, _), agent_at(url) as agent:
        assert await agent.run(REQUEST, CONTEXT) == output


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503])
async def test_a_status_that_may_pass_is_worth_another_try(status):
    fault = await fault_from(lambda _: reply(status, b"come back later"))

    assert fault == StepFault("http_unavailable", f"HTTP {status}: come back later", retryable=True)


@pytest.mark.parametrize("status", [400, 401, 404, 409, 422])
async def test_a_status_that_says_no_is_final(status):
    assert await fault_from(lambda _: reply(status)) == StepFault("http_rejected", f"HTTP {status}")


async def test_a_redirect_is_not_followed():
    async with server(lambda _: reply(200, b"1")) as (elsewhere, reached):
        fault = await fault_from(lambda _: reply(307, b"", f"Location: {elsewhere}"))

    assert (fault.code, fault.retryable) == ("http_rejected", False)
    assert "redirects are not followed" in fault.message
    assert reached == []


async def test_silence_ends_in_a_retryable_timeout():
    fault = await fault_from(lambda _: None, timeout_s=0.1)

    assert (fault.code, fault.retryable) == ("timeout", True)
    assert "0.1 s" in fault.message


async def test_nobody_there_is_worth_another_try():
    async with server(lambda _: reply(200)) as (url, _):
        pass

    async with agent_at(url) as agent:
        with pytest.raises(StepFailed) as caught:
            await agent.run(REQUEST, CONTEXT)

    assert (caught.value.fault.code, caught.value.fault.retryable) == ("http_unavailable", True)
    assert url in caught.value.fault.message


async def test_a_connection_cut_in_the_middle_is_worth_another_try():
    fault = await fault_from(lambda _: b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")

    assert (fault.code, fault.retryable) == ("http_unavailable", True)


async def test_an_answer_that_is_not_json_is_a_fault():
    fault = await fault_from(lambda _: reply(200, b"<html>"))

    assert (fault.code, fault.retryable) == ("output_invalid", False)


async def test_an_answer_beyond_the_limit_is_not_read_to_its_end():
    fault = await fault_from(lambda _: reply(200, b'"' + b"x" * BODY_BYTES_MAX + b'"'))

    assert fault.code == "output_too_large"
