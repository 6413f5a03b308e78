"""The whole platform, once for all end-to-end tests of a process: the tests only use it, none breaks it."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import httpx
import pytest

from agentflow.devstack.platform import EmbeddedPlatform, embedded_platform
from agentflow.sdk.client import Client
from agentflow.settings import inherited_environment

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedPlatform]:
    home = tmp_path_factory.mktemp("platform") / "home"
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        running = embedded_platform(home, agents_file=ROOT / "templates" / "support" / "agents.yaml")
        started = runner.run(running.__aenter__())
        try:
            yield started
        finally:
            runner.run(running.__aexit__(None, None, None))


@pytest.fixture
def support() -> str:
    return (ROOT / "templates" / "support" / "workflow.yaml").read_text()


@pytest.fixture
async def api(platform: EmbeddedPlatform) -> AsyncIterator[Client]:
    """The platform through its SDK, as its administrator."""
    async with Client(platform.api_url, api_key=platform.api_key) as client:
        yield client


@pytest.fixture
async def http(platform: EmbeddedPlatform) -> AsyncIterator[httpx.AsyncClient]:
    """The platform over plain HTTP, as its administrator."""
    headers = {"Authorization": f"Bearer {platform.api_key}"}
    async with httpx.AsyncClient(base_url=platform.api_url, trust_env=False, timeout=30, headers=headers) as client:
        yield client


Ran = subprocess.CompletedProcess[str]


@pytest.fixture
def af(platform: EmbeddedPlatform, tmp_path: Path) -> Callable[..., Ran]:
    """`af` in a folder of its own, talking to the platform as its administrator; must succeed unless it `may_fail`."""

    def ran(*words: str, may_fail: bool = False, api_key: str = platform.api_key) -> Ran:
        said = subprocess.run(
            [Path(sys.executable).with_name("af"), *words],
            cwd=tmp_path,
            env={**inherited_environment(), "AF_API_URL": platform.api_url, "AF_API_KEY": api_key},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert may_fail or said.returncode == 0, said.stderr
        return said

    return ran
