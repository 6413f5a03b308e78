"""What runs a tool that is an HTTP call: the input as JSON to its address, the answer's JSON as its output."""

from typing import Any

import http_request  # type: ignore[import-not-found]


class Refused(Exception):
    """The other side will not do it; asking again changes nothing."""


def run(input: dict[str, Any], context: Any) -> Any:
    given = {"url": input["url"], "method": input["method"], "headers": input["headers"], "json": input["input"]}
    answer = http_request.run(given, context)
    if 200 <= answer["status"] < 300:
        return answer.get("json")
    said = f"HTTP {answer['status']}: {answer['body'][:200]}"
    if answer["status"] >= 500 or answer["status"] in (408, 425, 429):
        raise http_request.Unreachable(said)
    raise Refused(said)
