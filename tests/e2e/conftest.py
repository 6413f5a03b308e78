"""The whole platform, once for all end-to-end tests of a process: the tests only use it, none breaks it."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentflow.devstack.platform import EmbeddedPlatform, embedded_platform

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
