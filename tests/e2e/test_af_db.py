"""`af db` as an operator runs it, and the one clear line for each way in which a database cannot be used."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import asyncpg
import pytest

from agentflow.settings import inherited_environment
from agentflow.testing import eventually

SECRET = "s3cr3t"


def af(*arguments: str, dsn: str, cwd: Path, **more: str) -> subprocess.CompletedProcess[str]:
    command = [Path(sys.executable).with_name("af"), *arguments]
    return subprocess.run(
        command,
        env={**inherited_environment(), "AF_DB_DSN": dsn, **more},
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


async def test_up_down_check_and_rebuild(database_dsn: str, tmp_path: Path) -> None:
    def asked(*arguments: str) -> dict[str, object]:
        done = af("db", *arguments, "--json", dsn=database_dsn, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        answer: dict[str, object] = json.loads(done.stdout)
        return answer

    def work() -> None:
        newest = asked("current")["newest"]
        assert asked("current")["current"] == "none"
        assert asked("upgrade")["from"] == "none"
        assert asked("upgrade")["from"] == newest
        assert asked("check")["current"] == newest
        assert asked("rebuild")["executions"] == 0
        assert asked("downgrade", "0003", "--yes")["to"] == "0003"
        old = af("db", "check", dsn=database_dsn, cwd=tmp_path)
        assert (old.returncode, old.stdout) == (2, "")
        assert "error[AF1208]" in old.stderr
        assert "0003" in old.stderr
        assert "Upgraded from 0003" in af("db", "upgrade", dsn=database_dsn, cwd=tmp_path).stdout

    await asyncio.to_thread(work)


async def execute(dsn: str, *statements: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        for statement in statements:
            await connection.execute(statement)
    finally:
        await connection.close()


async def guarded(postgres_dsn: str) -> str:
    """The same database for a user whose password is another one."""
    name = postgres_dsn.rpartition("/")[2]
    connection = await asyncpg.connect(postgres_dsn)
    try:
        await connection.execute(f"CREATE ROLE locked_{name} LOGIN PASSWORD 'another'")
        rules = Path(await connection.fetchval("SHOW hba_file"))
        rules.write_text(f"host {name} locked_{name} all scram-sha-256\n{rules.read_text()}")  # noqa: ASYNC240
        loaded = await connection.fetchval("SELECT pg_conf_load_time()")
        await connection.execute("SELECT pg_reload_conf()")

        async def reloaded() -> bool:
            return bool(await connection.fetchval("SELECT pg_conf_load_time()") != loaded)

        await eventually(reloaded)
    finally:
        await connection.close()
    return postgres_dsn.replace("agentflow@", f"locked_{name}:{SECRET}@")


@pytest.mark.parametrize("command", [("db", "current"), ("server",)], ids=["af db", "af server"])
async def test_each_way_a_database_cannot_be_used_is_one_clear_line_and_what_to_do(
    command: tuple[str, ...], postgres_dsn: str, tmp_path: Path
) -> None:
    assert (await asyncio.to_thread(af, "db", "upgrade", dsn=postgres_dsn, cwd=tmp_path)).returncode == 0
    await execute(postgres_dsn, "UPDATE alembic_version SET version_num = '9999'")
    cases = {
        f"mysql://af:{SECRET}@db/af": ("AF1501", 2, "sqlite or postgres"),
        f"postgres://af:{SECRET}@127.0.0.1:1/af": ("AF1202", 3, "Check that the database runs"),
        await guarded(postgres_dsn): ("AF1203", 2, "user or password is wrong"),
        postgres_dsn: ("AF1205", 2, "revision 9999"),
        f"sqlite:///{tmp_path}": ("AF1202", 3, "unable to open"),
    }
    for dsn, (code, exit_code, told) in cases.items():
        # A bus that is not there would be told too, but the database comes first.
        done = await asyncio.to_thread(af, *command, dsn=dsn, cwd=tmp_path, AF_NATS_URL="nats://127.0.0.1:1")

        assert done.returncode == exit_code, (dsn, done.stderr)
        assert f"error[{code}]" in done.stderr
        assert told in done.stderr
        assert "try: " in done.stderr or "(" in done.stderr
        assert SECRET not in done.stderr + done.stdout
        assert "Traceback" not in done.stderr
