"""Limits as callers meet them: exact under eight clients at once, and told with every answer."""

import asyncio
from collections import Counter
from pathlib import Path

import httpx

from agentflow.devstack.platform import embedded_platform

ROOT = Path(__file__).parents[2]
BURST, CLIENTS, EACH = 40, 8, 10


async def test_eight_clients_at_once_get_exactly_what_the_tenant_may(tmp_path):
    limits = {"AF_API_RATE_LIMIT_BURST": str(BURST), "AF_API_RATE_LIMIT_SUSTAINED": "1/h"}
    agents = ROOT / "templates" / "support" / "agents.yaml"
    async with embedded_platform(tmp_path / "home", agents_file=agents, extra_env=limits) as platform:

        async def client():
            headers = {"Authorization": f"Bearer {platform.api_key}"}
            async with httpx.AsyncClient(base_url=platform.api_url, trust_env=False, headers=headers) as http:
                paths = ["/api/v1/workflows/none/execute", "/api/v1/executions"]
                return [
                    await (http.post(paths[0], json={}) if number % 2 else http.get(paths[1])) for number in range(EACH)
                ]

        answers = [answer for some in await asyncio.gather(*(client() for _ in range(CLIENTS))) for answer in some]

    seen = Counter(answer.status_code == 429 for answer in answers)
    assert seen == {True: CLIENTS * EACH - BURST, False: BURST}
    left = [int(answer.headers["x-ratelimit-remaining"]) for answer in answers if answer.status_code != 429]
    assert sorted(left) == list(range(BURST))
    for answer in answers:
        assert answer.headers["x-ratelimit-limit"] == str(BURST)
        assert int(answer.headers["x-ratelimit-reset"]) > 0
        if answer.status_code == 429:
            assert int(answer.headers["retry-after"]) > 0
            assert answer.json()["code"] == "AF1725"
