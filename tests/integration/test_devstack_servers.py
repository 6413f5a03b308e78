"""Every server the devstack starts is truly ready, alone on its port, and gone afterwards."""

import asyncio
from pathlib import Path

import asyncpg
import nats as nats_client
import psutil
import pytest
import redis.asyncio as redis_client

from agentflow.devstack.nats import NatsServer, nats_server
from agentflow.devstack.postgres import PostgresServer, postgres_server
from agentflow.devstack.process import ServerDidNotStart
from agentflow.devstack.redis import RedisServer, redis_server


async def _stored_messages(server: NatsServer, *, publish: int = 0) -> int:
    connection = await nats_client.connect(server.url)
    try:
        stream = connection.jetstream()
        await stream.add_stream(name="S", subjects=["s"])
        for _ in range(publish):
            await stream.publish("s", b"kept")
        return (await stream.stream_info("S")).state.messages
    finally:
        await connection.close()


async def _answer(dsn: str, query: str) -> object:
    connection = await asyncpg.connect(dsn)
    try:
        return await connection.fetchval(query)
    finally:
        await connection.close()


async def test_a_nats_server_is_ready_for_jetstream_the_moment_we_have_it(nats: NatsServer) -> None:
    assert await _stored_messages(nats, publish=3) == 3


async def test_a_restarted_nats_server_keeps_its_port_and_its_messages(nats: NatsServer) -> None:
    await _stored_messages(nats, publish=3)
    url, first = nats.url, nats.process.pid

    await nats.restart()

    assert (nats.url, await _stored_messages(nats)) == (url, 3)
    assert nats.process.pid != first


async def test_a_killed_nats_server_can_be_restarted_on_the_same_port(nats: NatsServer) -> None:
    nats.process.kill()
    assert await nats.process.wait() == 128 + 9

    await nats.restart()

    assert await _stored_messages(nats, publish=1) == 1


async def test_a_wiped_nats_server_has_forgotten_everything(nats: NatsServer) -> None:
    await _stored_messages(nats, publish=3)

    await nats.restart(wipe=True)

    assert await _stored_messages(nats) == 0


async def test_a_nats_server_on_a_taken_port_says_so(nats: NatsServer, tmp_path: Path) -> None:
    with pytest.raises(ServerDidNotStart, match="address already in use"):
        async with nats_server(tmp_path / "second", port=nats.port):
            pass


async def test_each_postgres_database_is_new_and_empty(postgres: PostgresServer, postgres_dsn: str) -> None:
    await _answer(postgres_dsn, "CREATE TABLE here (x int)")
    other = await postgres.create_database()

    assert await _answer(postgres_dsn, "SELECT to_regclass('here')::text") == "here"
    assert await _answer(other, "SELECT to_regclass('here')::text") is None


async def test_postgres_runs_with_the_durability_that_production_has(postgres: PostgresServer) -> None:
    for setting in ("fsync", "synchronous_commit", "full_page_writes"):
        assert await _answer(postgres.dsn, f"SHOW {setting}") == "on"


async def test_a_postgres_server_started_again_on_its_directory_has_its_data(tmp_path: Path) -> None:
    async with postgres_server(tmp_path) as server:
        await _answer(server.dsn, "CREATE TABLE kept AS SELECT 7 AS x")
    async with postgres_server(tmp_path) as server:
        assert await _answer(server.dsn, "SELECT x FROM kept") == 7


async def test_a_redis_server_answers(redis: RedisServer) -> None:
    async with redis_client.from_url(redis.url) as client:
        await client.set("key", "value")
        assert await client.get("key") == b"value"


async def test_two_of_each_server_run_side_by_side_and_all_are_gone_afterwards(tmp_path: Path) -> None:
    makers = {"nats": nats_server, "postgres": postgres_server, "redis": redis_server}
    everyone_is_up = asyncio.Barrier(len(makers) * 2)

    async def live(kind: str, number: int) -> psutil.Process:
        async with makers[kind](tmp_path / f"{kind}-{number}") as server:
            process = psutil.Process(server.process.pid)
            await everyone_is_up.wait()
            assert process.is_running()
        return process

    processes = await asyncio.gather(*(live(kind, number) for kind in makers for number in (1, 2)))

    assert [process for process in processes if process.is_running()] == []
