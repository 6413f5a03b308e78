"""F-4: the power goes, twenty times, and with it all that was not on the disk: what was accepted is there all the same.

A file system of its own on a loop device is shut down without its log being written, as a disk is that loses power.
Needs root and a loop device; left out elsewhere.
"""

import asyncio
import fcntl
import os
import struct
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path

import asyncpg
import pytest

from agentflow.bus.nats_jetstream import jetstream
from agentflow.bus.subjects import AGENTS, agent_in
from agentflow.clock import SystemClock
from agentflow.contracts.message import Message, seal
from agentflow.devstack.nats import ANY_PORT, NatsServer, nats_server
from agentflow.devstack.postgres import PostgresServer, postgres_server
from agentflow.durable_files import make_private, replace_private
from agentflow.ids import AgentName, UlidSource
from agentflow.ports import StorageUnavailable
from agentflow.testing import eventually
from control_plane.storage import database as storage
from control_plane.storage.event_store import SqlEventStore
from control_plane.storage.sqlite_writer import SqliteWriter
from tests.faults.deployment import deployed
from tests.integration.test_storage_crash import EXECUTIONS, TENANT, append_until_stopped

_SHUTDOWN = 0x8004587D
_WITHOUT_LOG = 2
CUTS = 20
CONFIRMED = 300  # by one store or bus alone, before its power goes
STARTS = 30  # asked for at once in each life; the power goes while they are being answered


class Volume:
    def __init__(self, image: Path, place: Path) -> None:
        self._image = image
        self.place = place

    def mount(self) -> None:
        subprocess.run(["mount", "-o", "loop", self._image, self.place], check=True, capture_output=True)

    def unmount(self) -> bool:
        """Whether nobody used it any more. While somebody does, mounting it again would show what was shut down."""
        return subprocess.run(["umount", self.place], check=False, capture_output=True).returncode == 0

    def lose_power(self) -> None:
        place = os.open(self.place, os.O_RDONLY)
        try:
            fcntl.ioctl(place, _SHUTDOWN, struct.pack("i", _WITHOUT_LOG))
        finally:
            os.close(place)


@pytest.fixture
def volume(tmp_path: Path) -> Iterator[Volume]:
    image, place = tmp_path / "disk.img", tmp_path / "disk"
    place.mkdir()
    try:
        with image.open("wb") as file:
            file.truncate(512 * 1024 * 1024)
        subprocess.run(["mkfs.ext4", "-q", "-E", "lazy_itable_init=0", image], check=True, capture_output=True)
        made = Volume(image, place)
        made.mount()
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no file system of our own here: {error}")
    place.chmod(0o777)
    try:
        yield made
    finally:
        if not made.unmount():
            subprocess.run(["umount", "-l", place], check=False, capture_output=True)


def test_what_was_not_synced_is_gone_and_what_was_is_not(volume: Volume) -> None:
    """Of the cut itself: one that loses nothing proves nothing."""
    for name in ("kept", "lost"):
        (volume.place / name).write_bytes(b"x")
        if name == "kept":
            kept = os.open(volume.place / name, os.O_RDONLY)
            os.fsync(kept)
            os.close(kept)
            folder = os.open(volume.place, os.O_RDONLY)
            os.fsync(folder)
            os.close(folder)
    volume.lose_power()
    assert volume.unmount()
    volume.mount()

    assert [(volume.place / name).exists() for name in ("kept", "lost")] == [True, False]


@pytest.mark.parametrize("write", [make_private, replace_private])
def test_a_key_is_on_the_disk_before_anything_is_sealed_with_it(
    volume: Volume, write: Callable[[Path, bytes], None]
) -> None:
    write(volume.place / "home" / "key", b"secret")
    volume.lose_power()
    assert volume.unmount()
    volume.mount()

    assert (volume.place / "home" / "key").read_bytes() == b"secret"


@pytest.mark.parametrize("is_safe", [True, False], ids=["safe", "unsafe"])
async def test_what_sqlite_has_confirmed_survives_a_power_cut_unless_it_is_made_unsafe(
    volume: Volume, monkeypatch: pytest.MonkeyPatch, is_safe: bool
) -> None:
    """With the setting that people take for speed the same cut takes what was confirmed: so it would be seen."""
    dsn = f"sqlite:///{volume.place}/store.db"
    if not is_safe:
        hasty = partial(SqliteWriter, pragmas=("synchronous=NORMAL",))
        monkeypatch.setattr(storage, "SqliteWriter", lambda path, *, timeout_s, **_: hasty(path, timeout_s=timeout_s))

    confirmed = await confirmed_when_cut(dsn, volume.lose_power)
    assert volume.unmount()
    volume.mount()

    assert (await versions(dsn) >= confirmed) is is_safe


@pytest.mark.parametrize("is_safe", [True, False], ids=["safe", "unsafe"])
async def test_what_postgresql_has_confirmed_survives_a_power_cut_unless_it_is_made_unsafe(
    volume: Volume, monkeypatch: pytest.MonkeyPatch, is_safe: bool
) -> None:
    async with postgres_server(volume.place / "pg") as server:
        dsn = await server.create_database()
        if not is_safe:
            connection = await asyncpg.connect(dsn)
            await connection.execute(f"ALTER DATABASE {dsn.rpartition('/')[2]} SET synchronous_commit = off")
            await connection.close()
            monkeypatch.setitem(storage._DURABLE["postgresql"], "synchronous_commit", frozenset({"off"}))
        os.sync()  # a cluster is made without waiting for the disk

        def cut() -> None:
            volume.lose_power()
            server.process.kill()

        confirmed = await confirmed_when_cut(dsn, cut)
        await server.process.wait()
    await eventually(volume.unmount, within_s=20)
    volume.mount()

    async with postgres_server(volume.place / "pg") as again:
        assert (await versions(again.dsn_of(dsn.rpartition("/")[2])) >= confirmed) is is_safe


async def confirmed_when_cut(dsn: str, cut: Callable[[], None]) -> int:
    confirmed = 0
    with suppress(StorageUnavailable):
        async for version in append_until_stopped(dsn):
            confirmed = version
            if confirmed == CONFIRMED:
                cut()
    return confirmed


async def versions(dsn: str) -> int:
    """How many each execution has; whatever was lost, no batch is there in part."""
    async with storage.database(dsn) as db:
        lengths = {len(await SqlEventStore(db).read(TENANT, execution)) for execution in EXECUTIONS}
    assert len(lengths) == 1
    return lengths.pop()


async def test_what_the_bus_has_confirmed_is_gone_after_a_power_cut(volume: Volume) -> None:
    """Which is why nothing rests on it."""
    async with nats_server(volume.place / "nats") as nats, jetstream(nats.url, name="before") as bus:
        ids = UlidSource(SystemClock().now_ms)
        for _ in range(CONFIRMED):
            sent = a_message(ids)
            await bus.publish(agent_in("default", AgentName("a")), sent, dedup_id=sent.id, confirm=True)
        volume.lose_power()
        nats.process.kill()
        await nats.process.wait()
    await eventually(volume.unmount, within_s=20)
    volume.mount()

    async with nats_server(volume.place / "nats") as nats, jetstream(nats.url, name="after") as bus:
        assert len([message async for message in bus.replay(AGENTS)]) < CONFIRMED


def a_message(ids: UlidSource) -> Message:
    return seal(
        id=ids.message(),
        trace_id=ids.trace(),
        span_id="",
        sender="test",
        to="a",
        type="request",
        payload={},
        metadata={},
        at_ms=1,
    )


class Machine:
    """PostgreSQL and NATS on one volume; whoever knows the address of the bus finds it there in every life."""

    def __init__(self, volume: Volume) -> None:
        self._volume = volume
        self._database = ""
        self._lives = AsyncExitStack()
        self.postgres: PostgresServer
        self.nats: NatsServer

    async def start(self) -> None:
        place, port = self._volume.place, self.nats.port if self._database else ANY_PORT
        self.postgres = await self._lives.enter_async_context(postgres_server(place / "pg"))
        self.nats = await self._lives.enter_async_context(nats_server(place / "nats", port=port))
        self._database = self._database or (await self.postgres.create_database()).rpartition("/")[2]

    @property
    def dsn(self) -> str:
        return self.postgres.dsn_of(self._database)

    def lose_power(self) -> None:
        self._volume.lose_power()
        for process in (self.postgres.process, self.nats.process):
            process.kill()

    async def start_again(self) -> None:
        await self.stop()
        await eventually(self._volume.unmount, within_s=20)  # a killed server's children go a moment later
        self._volume.mount()
        await self.start()

    async def stop(self) -> None:
        await self._lives.aclose()


async def test_every_accepted_execution_survives_every_power_cut(volume: Volume, tmp_path: Path) -> None:
    """A worker on another machine goes on meanwhile, so that results are on their way too when the power goes."""
    async with AsyncExitStack() as stack:
        machine = Machine(volume)
        stack.push_async_callback(machine.stop)
        await machine.start()
        here = await stack.enter_async_context(deployed(tmp_path, machine.dsn, machine.nats))
        here.evidence.bus_forgot = True
        here.let_go()
        await here.worker()
        os.sync()  # a cluster is made without waiting for the disk; what is tested begins here
        asked = here.evidence.asked
        on_the_volume = {"AF_HOME": str(volume.place / "home"), "AF_ARTIFACTS_URL": f"file://{volume.place}/artifacts"}
        for life in range(CUTS):
            plane = await here.plane(dsn=machine.dsn, **on_the_volume)
            keys = [f"{life}/{number}" for number in range(STARTS)]
            starting = [asyncio.ensure_future(here.start(plane, "line", key=key)) for key in keys]
            enough = len(asked) + STARTS // 4
            await eventually(lambda enough=enough: len(asked) > enough, within_s=20)
            machine.lose_power()
            plane.kill()
            for each in starting:
                each.cancel()  # without an answer nothing was promised
            await asyncio.gather(plane.process.wait(), *starting, return_exceptions=True)
            await machine.start_again()
        here.evidence.dsn = machine.dsn
        await here.plane(dsn=machine.dsn, **on_the_volume)

        history = await here.check(within_s=90)
        accepted = {one.execution for one in asked if one.outcome == "accepted"}
        assert len(accepted) >= CUTS * STARTS // 4
        assert accepted <= {one.execution for one in history.events}
