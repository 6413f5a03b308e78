"""An agent behind a URL: each step is one POST, and the response's JSON is the output.

`Idempotency-Key` is the step's effect key, the same over all attempts, so the other side can tell a repeat, and
`Agentflow-Timeout-Ms` is how long anybody here will wait for the answer.
Redirects are not followed and the environment's proxies are not used: a step goes where its owner wrote.
"""

import json
from collections.abc import Mapping
from typing import Any

import httpx
import msgspec

from agentflow import limits
from agentflow.contracts.step import StepFault, StepRequest
from worker.agents.agent import StepContext
from worker.outcome import StepFailed

_WORTH_ANOTHER_TRY = frozenset({408, 425, 429})
_EXCERPT_CHARS = 200


USAGE_HEADER = "Agentflow-Usage"


class HttpAgent:
    def __init__(
        self,
        url: str,
        *,
        timeout_s: float,
        headers: Mapping[str, str],
        concurrency: int,
        body_bytes_max: int = limits.VALUE_BYTES_MAX,
    ) -> None:
        self._url = url
        self._timeout_s = timeout_s
        self._body_bytes_max = body_bytes_max
        self._client = httpx.AsyncClient(
            timeout=timeout_s,
            headers=dict(headers),
            follow_redirects=False,
            trust_env=False,
            limits=httpx.Limits(max_connections=concurrency, max_keepalive_connections=concurrency),
        )

    async def run(self, request: StepRequest, context: StepContext) -> Any:
        body = msgspec.json.encode(
            {
                "input": request.input,
                "execution_id": request.execution_id,
                "step": request.name,
                "attempt": request.attempt,
            }
        )
        patience_s = max(0.001, min(self._timeout_s, context.remaining_s))
        headers = {
            "Content-Type": "application/json",
            "Idempotency-Key": context.effect_key,
            "Agentflow-Timeout-Ms": str(int(patience_s * 1000)),
        }
        try:
            async with self._client.stream(
                "POST", self._url, content=body, headers=headers, timeout=patience_s
            ) as response:
                body = await _bounded_body(response, self._body_bytes_max)
                _count(response.headers.get(USAGE_HEADER), context)
                return _output(response.status_code, body)
        except httpx.TimeoutException:
            late = f"{self._url} did not answer within {patience_s:g} s."
            raise StepFailed(StepFault("timeout", late, retryable=True)) from None
        except httpx.TransportError as error:
            away = f"{self._url} cannot be reached: {str(error) or type(error).__name__}."
            raise StepFailed(StepFault("http_unavailable", away, retryable=True)) from None

    async def close(self) -> None:
        await self._client.aclose()


def _count(said: str | None, context: StepContext) -> None:
    """What the agent says it has used: `{"resource": "gpt-x", "dollars": "0.0021", "tokens": {"input": 900}}`."""
    if said is None:
        return
    try:
        used = msgspec.json.decode(said, type=_Used)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StepFailed(StepFault("output_invalid", f"{USAGE_HEADER} cannot be read: {error}.")) from None
    context.spent(used.resource, dollars=used.dollars, **used.tokens)


class _Used(msgspec.Struct, forbid_unknown_fields=True):
    resource: str
    dollars: str | None = None
    tokens: dict[str, int] = {}


async def _bounded_body(response: httpx.Response, bytes_max: int) -> bytes:
    body = bytearray()
    async for chunk in response.aiter_bytes():
        body += chunk
        if len(body) > bytes_max:
            large = f"The response has more than {bytes_max} bytes."
            raise StepFailed(StepFault("output_too_large", large))
    return bytes(body)


def _output(status: int, body: bytes) -> Any:
    if 200 <= status < 300:
        if not body:
            return None
        try:
            return json.loads(body)
        except ValueError as error:
            raise StepFailed(StepFault("output_invalid", f"The response is not JSON: {error}.")) from None
    said = body[: _EXCERPT_CHARS * 4].decode(errors="replace").strip()[:_EXCERPT_CHARS]
    message = f"HTTP {status}" + (f": {said}" if said else "")
    if status in _WORTH_ANOTHER_TRY or status >= 500:
        raise StepFailed(StepFault("http_unavailable", message, retryable=True))
    if 300 <= status < 400:
        message += " (redirects are not followed; write the final address)"
    raise StepFailed(StepFault("http_rejected", message))
