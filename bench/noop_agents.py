"""The cheapest agent there is, so that what is measured is the platform."""

from typing import Any


async def noop(input: dict[str, Any]) -> dict[str, Any]:
    return {"i": input["i"] + 1, "text": input["text"]}
