"""`http.request`: one HTTP request, through the socket that is the sandbox's only way out. Standard library alone."""

import contextlib
import http.client
import json
import os
import socket
from typing import Any
from urllib.parse import urljoin, urlsplit

_BODY_BYTES_MAX = 400_000  # what comes back must fit into a step's output
_TIMEOUT_S = 30.0
_REDIRECTS = (301, 302, 303, 307, 308)


class Unreachable(Exception):
    """The other side is away; another attempt may help."""

    retryable = True


class Denied(Exception):
    """The egress proxy said no; the text says how to be let through."""


class _Egress(http.client.HTTPConnection):
    """A connection whose other end is the proxy. It speaks TLS for us, so `https` goes in the first line."""

    def __init__(self, path: str, timeout_s: float) -> None:
        super().__init__("egress", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def run(input: dict[str, Any], context: Any) -> dict[str, Any]:
    headers = dict(input.get("headers", {}))
    headers.setdefault("Idempotency-Key", context.effect_key)
    body = None
    if "json" in input:
        body = json.dumps(input["json"]).encode()
        headers.setdefault("Content-Type", "application/json")
    elif "body" in input:
        body = input["body"].encode()
    method, url = input.get("method", "POST" if body is not None else "GET"), input["url"]
    left = input.get("follow_redirects", 0)
    while True:
        answer, location = request(method, url, headers, body, input.get("timeout_s", _TIMEOUT_S))
        if not left or answer["status"] not in _REDIRECTS or not location:
            return answer
        left -= 1
        before, url = url, urljoin(url, location)
        if urlsplit(before).netloc.lower() != urlsplit(url).netloc.lower():
            headers = {name: value for name, value in headers.items() if name.lower() not in _PRIVATE}
        if answer["status"] == 303 or (answer["status"] in (301, 302) and method == "POST"):
            method, body = "GET", None


_PRIVATE = ("authorization", "cookie", "proxy-authorization", "x-api-key")


def request(
    method: str, url: str, headers: dict[str, str], body: bytes | None, timeout_s: float
) -> tuple[dict[str, Any], str | None]:
    egress = os.environ.get("AGENTFLOW_EGRESS")  # noqa: TID251 - how a sandbox tells a tool what it was given
    if egress is None:
        host = urlsplit(url).hostname
        raise Denied(
            f"This tool has no way out. To reach {host}, add `network.http:{host}` to the permissions of the tool."
        )
    connection = _Egress(egress, timeout_s)
    try:
        connection.putrequest(method, url, skip_host=True, skip_accept_encoding=True)
        connection.putheader("Host", urlsplit(url).netloc)
        for name, value in headers.items():
            connection.putheader(name, value)
        if body is not None:
            connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body)
        response = connection.getresponse()
        content = response.read(_BODY_BYTES_MAX + 1)
    except (OSError, http.client.HTTPException) as error:
        raise Unreachable(f"{url} did not answer: {str(error) or type(error).__name__}") from None
    finally:
        connection.close()
    refusal = response.getheader("X-AgentFlow-Egress")
    if refusal is not None:
        said = json.loads(content)
        kind = Unreachable if refusal in ("unreachable", "unresolved") else Denied
        raise kind(f"{said['message']} {said['hint']}".strip())
    if len(content) > _BODY_BYTES_MAX:
        raise ValueError(f"The answer has more than {_BODY_BYTES_MAX} bytes.")
    return _answer(url, response, content), response.getheader("Location")


def _answer(url: str, response: http.client.HTTPResponse, content: bytes) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "status": response.status,
        "url": url,
        "headers": {name.lower(): value for name, value in response.getheaders()},
        "body": content.decode(errors="replace"),
    }
    if "json" in (response.getheader("Content-Type") or ""):
        with contextlib.suppress(ValueError):  # it says it is JSON and is not; the body is there all the same
            answer["json"] = json.loads(content)
    return answer
