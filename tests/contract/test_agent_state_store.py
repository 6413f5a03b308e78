"""What a store of agents' states must hold to, on each engine: the next version or nothing."""

import asyncio

import pytest

from agentflow.contracts.agent_state import StateRef
from control_plane.registry.agent_states import StoredState
from control_plane.storage.agent_states import SqlAgentStates
from control_plane.storage.database import database
from control_plane.storage.migrate import upgrade

REF = StateRef("default", "clerk", "ada")


@pytest.fixture
async def store(database_dsn):
    async with database(database_dsn) as db:
        await upgrade(db)
        yield SqlAgentStates(db)


def state(version, worker="wrk_1", data=b"\x28data"):
    return StoredState(version, worker, data, "step", 1_700_000_000_000)


async def test_a_state_comes_back_as_it_was_written(store):
    assert await store.latest(REF) is None
    assert await store.append(REF, state(1, data=b"\x00\xff"))
    assert await store.append(REF, state(2, worker=None))

    assert await store.latest(REF) == state(2, worker=None)
    assert await store.latest(StateRef("default", "clerk", "bob")) is None
    assert await store.latest(StateRef("other", "clerk", "ada")) is None


@pytest.mark.parametrize("version", [0, 1, 3, 4, 6])
async def test_only_the_version_that_follows_is_written(store, version):
    for number in range(1, 5):
        assert await store.append(REF, state(number))

    assert not await store.append(REF, state(version, worker="wrk_late"))
    assert await store.latest(REF) == state(4)


async def test_a_version_forgotten_long_ago_cannot_be_written_again(store):
    for number in range(1, 30):
        assert await store.append(REF, state(number))

    assert not await store.append(REF, state(2, worker="wrk_late"))
    assert (await store.latest(REF)).version == 29


async def test_of_many_who_write_the_same_version_one_does(store):
    assert await store.append(REF, state(1))

    written = await asyncio.gather(*(store.append(REF, state(2, worker=f"wrk_{n}")) for n in range(8)))

    assert sorted(written) == [False] * 7 + [True]
