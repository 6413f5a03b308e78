"""The real servers that tests may ask for. Nothing is started for a test that does not name it."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from agentflow.devstack.nats import NatsServer, nats_server
from agentflow.devstack.postgres import PostgresServer, postgres_server
from agentflow.devstack.redis import RedisServer, redis_server

# How long an example takes says something about the machine, not about the code: speed is measured in bench/.
settings.register_profile("agentflow", deadline=None)
settings.load_profile("agentflow")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What was left out because a program is not installed, with the command that installs it; what was measured."""
    needed: set[str] = set()
    count = 0
    for report in terminalreporter.stats.get("skipped", []):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else ""
        _, asked, packages = reason.partition("needs apt-get install -y ")
        if asked:
            needed.update(packages.split())
            count += 1
    if needed:
        command = f"apt-get update && apt-get install -y {' '.join(sorted(needed))}"
        terminalreporter.write_line(f"left out: {count} sandbox tests; to run them too, as root: {command}")
    for report in terminalreporter.stats.get("passed", []) + terminalreporter.stats.get("failed", []):
        for name, said in report.user_properties:
            if name == "measured":
                terminalreporter.write_line(f"measured: {said}")


@pytest.fixture
async def nats(tmp_path: Path) -> AsyncIterator[NatsServer]:
    """A fresh NATS with JetStream, for this test alone."""
    async with nats_server(tmp_path / "nats") as server:
        yield server


@pytest.fixture
async def redis(tmp_path: Path) -> AsyncIterator[RedisServer]:
    """A fresh Redis, for this test alone."""
    async with redis_server(tmp_path / "redis") as server:
        yield server


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """One PostgreSQL for all tests of this process; take `postgres_dsn` for a database of your own.

    It is started on a loop that stands still between, so tests with loops of their own can share it.
    """
    with (
        tempfile.TemporaryDirectory(prefix="agentflow-") as directory,
        asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner,
    ):
        running = postgres_server(Path(directory))
        server = runner.run(running.__aenter__())
        try:
            yield server
        finally:
            runner.run(running.__aexit__(None, None, None))


@pytest.fixture
async def postgres_dsn(postgres: PostgresServer) -> str:
    """A new empty database."""
    return await postgres.create_database()


@pytest.fixture(params=["sqlite", "postgresql"])
def database_dsn(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A new empty database, once on each engine."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/agentflow.db"
    dsn: str = request.getfixturevalue("postgres_dsn")
    return dsn
