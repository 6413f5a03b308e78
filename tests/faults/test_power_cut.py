"""F-4: the power goes, and with it everything that was not on the disk: what was accepted is there all the same.

A file system of its own on a loop device is shut down without its log being written, as a disk is that loses power.
Needs root and a loop device; left out elsewhere.
"""

import asyncio
import fcntl
import os
import struct
import subprocess
from collections.abc import Iterator
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import pytest

from agentflow.devstack.nats import nats_server
from agentflow.devstack.postgres import postgres_server
from agentflow.testing import eventually
from tests.faults.deployment import deployed
from tests.invariants.history import Asked

_SHUTDOWN = 0x8004587D
_WITHOUT_LOG = 2
CUTS = 2


class Volume:
    def __init__(self, image: Path, place: Path) -> None:
        self._image = image
        self.place = place

    def mount(self) -> None:
        subprocess.run(["mount", "-o", "loop", self._image, self.place], check=True, capture_output=True)

    def unmount(self) -> None:
        subprocess.run(["umount", "-l", self.place], check=False, capture_output=True)

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
        made.unmount()


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
    volume.unmount()
    volume.mount()

    assert [(volume.place / name).exists() for name in ("kept", "lost")] == [True, False]


def _has_more(asked: list[Asked], than: int) -> bool:
    return len(asked) > than


async def test_every_accepted_execution_survives_a_power_cut(volume: Volume, tmp_path: Path) -> None:
    asked: list[Asked] = []
    database, admin = "", ""
    for life in range(CUTS + 1):
        async with AsyncExitStack() as stack:
            server = await stack.enter_async_context(postgres_server(volume.place / "pg"))
            database = database or (await server.create_database()).rpartition("/")[2]
            nats = await stack.enter_async_context(nats_server(volume.place / "nats"))
            folder = tmp_path / f"life-{life}"
            folder.mkdir()
            here = await stack.enter_async_context(deployed(folder, server._dsn(server._port, database), nats))
            here.evidence.asked, here.evidence.bus_forgot = asked, True
            if life:
                (here.folder / "admin.key").write_text(admin)
            plane = await here.plane()
            admin = (here.folder / "admin.key").read_text()
            if life == CUTS:
                await here.worker()
                here.let_go()
                assert len([one for one in asked if one.outcome == "accepted"]) > CUTS
                await here.check(within_s=90)
                break
            os.sync()  # a cluster is made without waiting for the disk; what is tested begins here
            starting = asyncio.gather(*(here.start(plane, "nap", key=f"{life}/{number}") for number in range(60)))
            await eventually(partial(_has_more, asked, len(asked) + 5), within_s=20)
            volume.lose_power()
            for process in (server.process, nats.process, plane.process):
                process.kill()
            await starting
        volume.unmount()
        volume.mount()
