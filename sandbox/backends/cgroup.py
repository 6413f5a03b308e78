"""Bounds that hold for everything a call starts together: memory, processes, CPU; and a kill that misses nobody.

Version 2 or the hierarchies of version 1, whichever this machine lets us write to; where it lets us write to none,
`find_cgroups` says so and backends do without (their layers then lack `cgroup`). Used by `process` and `gvisor`;
Docker keeps its own.
"""

import asyncio
import contextlib
import itertools
import os
import signal
from collections.abc import Mapping
from pathlib import Path

import msgspec

from agentflow.clock import SystemClock
from sandbox.policy import ExecProfile

_V1_CONTROLLERS = ("memory", "pids", "cpu", "freezer")
_CPU_PERIOD_US = 100_000
_EMPTY_WITHIN_S = 2.0
_YOUNG_MS = 60_000
_PAUSE_S = 0.005
_JOIN = 'n=$1; shift; while [ "$n" -gt 0 ]; do echo 0 > "$1" || exit 70; shift; n=$((n-1)); done; exec "$@"'

_counter = itertools.count()


class Cgroups(msgspec.Struct, frozen=True):
    """Where groups can be made: a folder for each controller, or one for all of them (version 2)."""

    version: int
    homes: Mapping[str, Path]

    def create(self, profile: ExecProfile, *, spare_bytes: int = 0, spare_processes: int = 0) -> "Cgroup":
        """A group for one call. What fences the call counts too, and so do the files it keeps in memory."""
        name = f"agentflow-{os.getpid()}-{next(_counter)}"
        folders = {controller: home / name for controller, home in self.homes.items()}
        group = Cgroup(self.version, folders)
        try:
            for folder in set(folders.values()):
                folder.mkdir()
            group.bound(profile, spare_bytes, spare_processes)
        except OSError:
            group.discard()
            raise
        return group

    def sweep(self) -> None:
        """Remove groups that workers which were killed left empty; a young one may be about to be joined."""
        for home in set(self.homes.values()):
            for folder in home.glob("agentflow-*"):
                with contextlib.suppress(OSError):
                    if SystemClock().now_ms() - folder.stat().st_mtime * 1000 > _YOUNG_MS:
                        folder.rmdir()


class Cgroup:
    def __init__(self, version: int, folders: Mapping[str, Path]) -> None:
        self._version = version
        self._folders = folders

    def joining(self, argv: list[str]) -> list[str]:
        """`argv`, started inside the group from its first instruction on."""
        doors = sorted({str(folder / "cgroup.procs") for folder in self._folders.values()})
        return ["/bin/sh", "-c", _JOIN, "sh", str(len(doors)), *doors, *argv]

    def bound(self, profile: ExecProfile, spare_bytes: int, spare_processes: int) -> None:
        memory_bytes = profile.memory_bytes + profile.disk_bytes + spare_bytes
        processes = profile.processes_max + spare_processes
        quota = int(profile.cpus * _CPU_PERIOD_US)
        if self._version == 2:
            self._write("memory", "memory.max", memory_bytes)
            with contextlib.suppress(OSError):  # no swap, nothing to bound
                self._write("memory", "memory.swap.max", 0)
            self._write("pids", "pids.max", processes)
            self._write("cpu", "cpu.max", f"{quota} {_CPU_PERIOD_US}")
            return
        self._write("memory", "memory.limit_in_bytes", memory_bytes)
        with contextlib.suppress(OSError):
            self._write("memory", "memory.memsw.limit_in_bytes", memory_bytes)
        self._write("pids", "pids.max", processes)
        self._write("cpu", "cpu.cfs_period_us", _CPU_PERIOD_US)
        self._write("cpu", "cpu.cfs_quota_us", quota)

    def ran_out_of_memory(self) -> bool:
        file = "memory.events" if self._version == 2 else "memory.oom_control"
        return self._count("memory", file, "oom_kill") > 0

    def ran_out_of_processes(self) -> bool:
        return self._count("pids", "pids.events", "max") > 0

    def members(self) -> list[int]:
        folder = self._folders["pids"]
        with contextlib.suppress(OSError):
            return [int(line) for line in (folder / "cgroup.procs").read_text().split()]
        return []

    async def end(self) -> None:
        """Freeze, kill, see that nobody is left, remove. Nothing in the group can fork its way past this."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _EMPTY_WITHIN_S
        self.kill()
        while self.members() and loop.time() < deadline:
            await asyncio.sleep(_PAUSE_S)
            self.kill()
        while not self.discard() and loop.time() < deadline:  # noqa: ASYNC110 - the kernel does not tell when
            await asyncio.sleep(_PAUSE_S)

    def discard(self) -> bool:
        removed = True
        for folder in set(self._folders.values()):
            try:
                folder.rmdir()
            except FileNotFoundError:
                continue
            except OSError:
                removed = False
        return removed

    def kill(self) -> None:
        if not self.members():
            return
        if self._version == 2:
            with contextlib.suppress(OSError):
                self._write("pids", "cgroup.kill", 1)
                return
        with contextlib.suppress(OSError):
            self._write("freezer", "freezer.state", "FROZEN")
        for pid in self.members():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(OSError):
            self._write("freezer", "freezer.state", "THAWED")

    def _write(self, controller: str, file: str, value: object) -> None:
        (self._folders[controller] / file).write_text(str(value))

    def _count(self, controller: str, file: str, key: str) -> int:
        with contextlib.suppress(OSError):
            for line in (self._folders[controller] / file).read_text().splitlines():
                name, _, value = line.partition(" ")
                if name == key:
                    return int(value)
        return 0


def find_cgroups(own: Path = Path("/proc/self/cgroup"), mounts: Path = Path("/proc/self/mountinfo")) -> Cgroups | None:
    """Where this process may make groups, found by making one."""
    try:
        memberships = _memberships(own.read_text())
        hierarchies = _hierarchies(mounts.read_text())
    except OSError:
        return None
    for found in (_version_1(memberships, hierarchies), _version_2(memberships, hierarchies)):
        if found is not None and _works(found):
            return found
    return None


def _memberships(text: str) -> dict[str, str]:
    """Controller → the path of our own group. Version 2 is the empty name."""
    found = {}
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        found.update(dict.fromkeys(controllers.split(","), path))
    return found


def _hierarchies(text: str) -> dict[str, Path]:
    found = {}
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        place = Path(before.split(" ")[4])
        if kind == "cgroup2":
            found[""] = place
        elif kind == "cgroup":
            found.update({option: place for option in options.split()[-1].split(",") if option in _V1_CONTROLLERS})
    return found


def _version_1(memberships: Mapping[str, str], hierarchies: Mapping[str, Path]) -> Cgroups | None:
    homes = {}
    for controller in _V1_CONTROLLERS:
        if controller not in hierarchies or controller not in memberships:
            return None
        homes[controller] = _own_folder(hierarchies[controller], memberships[controller])
    return Cgroups(1, homes)


def _version_2(memberships: Mapping[str, str], hierarchies: Mapping[str, Path]) -> Cgroups | None:
    if "" not in hierarchies or "" not in memberships:
        return None
    home = _own_folder(hierarchies[""], memberships[""])
    with contextlib.suppress(OSError):  # refused where the group holds processes; maybe it is enabled already
        (home / "cgroup.subtree_control").write_text("+memory +pids +cpu")
    return Cgroups(2, dict.fromkeys(("memory", "pids", "cpu"), home))


def _own_folder(hierarchy: Path, path: str) -> Path:
    own = hierarchy / path.lstrip("/")
    return own if own.is_dir() else hierarchy  # in a container the mount may already be our own group


def _works(cgroups: Cgroups) -> bool:
    probe = ExecProfile("process", "full", 1, 1, 64 * 1024 * 1024, 1, 1, 1, 8)
    try:
        return cgroups.create(probe).discard()
    except (OSError, KeyError):
        return False
