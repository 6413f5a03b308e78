"""Restate: its real server, and the Python SDK's endpoint as a separate process."""

import asyncio
import os
import sys
import uuid
from importlib.metadata import version
from typing import Any

import aiohttp
import harness


async def main() -> None:
    harness.stop_at_sigterm()
    ingress, admin, node, endpoint = (harness.free_port() for _ in range(4))
    environment = {
        "RESTATE_BASE_DIR": str(harness.DATA / "restate"),
        "RESTATE_INGRESS__BIND_PORT": str(ingress),
        "RESTATE_ADMIN__BIND_PORT": str(admin),
        "RESTATE_BIND_PORT": str(node),
        "RESTATE_LOG_FILTER": "warn",
        "RESTATE_NODE_NAME": "peers",
        "RESTATE_AUTO_PROVISION": "true",
    }
    serve = [sys.executable, "-m", "hypercorn", "restate_services:app", "--bind", f"127.0.0.1:{endpoint}"]
    with (
        harness.started([os.environ["RESTATE_SERVER"], "--no-logo"], environment=environment),
        harness.started([*serve, "--log-level", "warning"]),
    ):
        harness.wait_for(f"http://127.0.0.1:{admin}/health")
        patience = aiohttp.ClientTimeout(total=300)
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=patience) as http:
            await _register(http, f"http://127.0.0.1:{admin}/deployments", f"http://127.0.0.1:{endpoint}")

            async def call(workflow: str, request: dict[str, Any]) -> Any:
                url = f"http://127.0.0.1:{ingress}/{workflow}/{uuid.uuid4().hex}/run"
                async with http.post(url, json=request) as response:
                    response.raise_for_status()
                    return await response.json()

            async def line(steps: int, start: int) -> harness.Payload:
                return await call("Line", {**harness.first(start), "steps": steps})

            async def fan(width: int) -> int:
                return await call("Fan", {"text": harness.TEXT, "width": width})

            durable = "each step appended to its replicated log, flushed, before it is acknowledged"
            await harness.measure(line, fan, version=version("restate-sdk"), durable=durable)


async def _register(http: aiohttp.ClientSession, deployments: str, uri: str) -> None:
    for _ in range(100):
        async with http.post(deployments, json={"uri": uri}) as response:
            if response.status < 300:
                return
        await asyncio.sleep(0.2)
    raise RuntimeError("Restate does not accept the endpoint")


asyncio.run(main())
