"""A call on a kernel of its own: gVisor's, which answers the tool's system calls instead of the machine's.

`runsc` is driven directly, with an OCI bundle written here: the host's interpreter read-only, nothing else of the
host's but what was granted, no network, no sockets of the host but the way out. Bounds come from a control group
outside, since gVisor leaves those to its host. Container tools go through Docker with the same `runsc` as runtime.
"""

import asyncio
import itertools
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from sandbox.backends import layout
from sandbox.backends.cgroup import Cgroups, find_cgroups
from sandbox.backends.daemon import DockerOptions
from sandbox.backends.door import Door
from sandbox.backends.exchange import Ending, frame
from sandbox.backends.inmate import perform, user_of
from sandbox.backends.pool import Berth, Pool, berth
from sandbox.backends.scratch import Scratch, sweep
from sandbox.backends.stdio import StdioProcess
from sandbox.backends.unsupported import SandboxUnavailable, refuse_unless
from sandbox.policy import MIB, ExecProfile, Isolation
from sandbox.tool_call import Container, SandboxOutcome, ToolCall
from sandbox.workspace import hand_over

if TYPE_CHECKING:
    from sandbox.backends.docker import DockerSandbox

_INSTALL = "Install it: apt-get install -y runsc (Debian), or see gvisor.dev; it needs root or user namespaces."
_SPARE_BYTES = 160 * MIB  # gVisor's own kernel and file server
_SPARE_PROCESSES = 512  # and their threads, and one more for each of the tool's
_PROBE_S = 20.0
_IDLE_MAX = 8
LAYERS = (
    *("capabilities", "environment", "gvisor_kernel", "ipc", "mount", "network", "no_new_privileges", "pid"),
    *("read_only", "rlimits", "user", "uts"),
)
_counter = itertools.count()

Bundle = dict[str, Any]


async def open_gvisor_sandbox(options: DockerOptions | None = None) -> "GvisorSandbox":
    """Run `true` on gVisor once, or refuse. `options` name the daemon for container tools."""
    sweep()
    runsc = shutil.which("runsc")
    if runsc is None:
        raise SandboxUnavailable("gvisor", "there is no `runsc` on the PATH", hint=_INSTALL)
    cgroups = find_cgroups()
    if cgroups is not None:
        cgroups.sweep()
    sandbox = GvisorSandbox(runsc, cgroups=cgroups, docker=options)
    reason = await sandbox.probe()
    if reason:
        raise SandboxUnavailable("gvisor", f"`{runsc}` does not run here: {reason}", hint=_INSTALL)
    return sandbox


class GvisorSandbox:
    backend = "gvisor"
    isolation: Isolation = "full"

    def __init__(
        self,
        runsc: str,
        *,
        cgroups: Cgroups | None,
        docker: DockerOptions | None = None,
        idle_max: int = _IDLE_MAX,
        loosened: Callable[[Bundle, list[str]], None] | None = None,
    ) -> None:
        """`loosened` may take back parts of the bundle or flags: for tests that show what each part is for."""
        self._runsc = runsc
        self._cgroups = cgroups
        self._docker_options = docker
        self._docker: DockerSandbox | None = None
        self._loosened = loosened
        self._pool = Pool(self._start, idle_max=idle_max)
        self.layers = tuple(sorted((*LAYERS, "cgroup") if cgroups is not None else LAYERS))

    async def run(self, call: ToolCall, profile: ExecProfile) -> SandboxOutcome:
        refuse_unless(call, self.backend, python=True, command=True, container=True)
        if isinstance(call.call, Container):
            return await (await self._through_docker()).run(call, profile)
        place = berth(call, profile)
        inmate = await self._pool.take(place)
        try:
            return await perform(
                inmate,
                _frame(call, profile, address_space=self._cgroups is None),
                profile,
                backend=self.backend,
                isolation=self.isolation,
                proxy=call.egress,
            )
        finally:
            self._pool.give_back(place, inmate)

    async def warmed(self) -> None:
        """Return once the next sandboxes are ready."""
        await self._pool.warmed()

    def keep_none_warm(self) -> None:
        self._pool.idle_max = 0

    async def close(self) -> None:
        await self._pool.close()
        if self._docker is not None:
            await self._docker.close()

    async def probe(self) -> str:
        """Why gVisor does not run here; empty if it does."""
        nothing = ExecProfile("gvisor", "full", 1, 1, 64 * MIB, 1, 1, 64, 8, disk_bytes=MIB)
        call = ToolCall("", (), None, "", "", 1, "")  # type: ignore[arg-type]
        inmate = await self._start(Berth("probe", call, nothing), early=True)
        try:
            async with asyncio.timeout(_PROBE_S):
                await inmate.ready()
        except (TimeoutError, ProcessLookupError) as error:
            return inmate.said() or str(error) or "it was not ready in time"
        finally:
            await inmate.end()
            await inmate.discard()
        return ""

    async def _through_docker(self) -> "DockerSandbox":
        from sandbox.backends.docker import open_docker_sandbox  # only who uses Docker pays for its client

        if self._docker is None:
            options = self._docker_options
            if options is None:
                raise SandboxUnavailable(
                    "gvisor", "images need a Docker daemon with the runtime runsc", hint="Set AF_DOCKER_HOST."
                )
            self._docker = await open_docker_sandbox(msgspec.structs.replace(options, runtime="runsc"))
        return self._docker

    async def _start(self, place: Berth, early: bool) -> "_Guest":
        call, profile = place.call, place.profile
        user = user_of(call.tenant)
        if call.workspace is not None:
            await asyncio.to_thread(hand_over, call.workspace, user)
        door = Door(call.trusted) if profile.egress and call.egress is not None else None
        scratch = Scratch()
        program = [sys.executable, "-I", "-B", layout.CHILD_INSIDE, *(["wait"] if early else [])]
        placed = layout.interpreter_layout(call, profile, door=door.folder if door is not None else None)
        bundle = oci_bundle(program, placed, profile, user=user)
        flags = ["--root", str(scratch.path / "state"), "--network=none", "--ignore-cgroups"]
        if door is not None:
            flags.append("--host-uds=open")  # of the folders mounted, only the door has a socket
        if os.getuid() != 0:
            flags.append("--rootless")
        if self._loosened is not None:
            self._loosened(bundle, flags)
        await asyncio.to_thread(_write, scratch.path, bundle, placed)
        name = f"agentflow-{os.getpid()}-{next(_counter)}"
        argv = [self._runsc, *flags, "run", "--bundle", str(scratch.path), name]
        cgroup = None
        if self._cgroups is not None:
            cgroup = self._cgroups.create(profile, spare_bytes=_SPARE_BYTES, spare_processes=_SPARE_PROCESSES)
        try:
            process = await StdioProcess.start(argv, cwd=str(scratch.path), env={}, cgroup=cgroup, hasty=True)
        except BaseException:
            await asyncio.to_thread(scratch.remove)
            if door is not None:
                await door.close()
            raise
        cleaning = None if cgroup is not None else [self._runsc, *flags, "delete", "--force", name]
        return _Guest(process, layers=self.layers, scratch=scratch, door=door, cleaning=cleaning)


def oci_bundle(program: list[str], placed: layout.Layout, profile: ExecProfile, *, user: int) -> Bundle:
    """The whole of what a sandbox is told: OCI's config.json."""
    room = ["nosuid", "nodev", f"size={profile.disk_bytes}", "mode=1777"]
    mounts: list[dict[str, Any]] = [{"destination": "/proc", "type": "proc", "source": "proc"}]
    mounts += [
        {"destination": place, "type": "tmpfs", "source": "tmpfs", "options": room}
        for place in (layout.WORK, *layout.TEMPORARY)
    ]
    for mount in placed.mounts:
        options = ["rbind", "rw" if mount.writable else "ro"]
        mounts.append({"destination": mount.target, "type": "bind", "source": mount.source, "options": options})
    limits = {"RLIMIT_CORE": 0, "RLIMIT_NOFILE": profile.files_max, "RLIMIT_FSIZE": profile.file_bytes}
    return {
        "ociVersion": "1.0.2",
        "hostname": "sandbox",
        "root": {"path": "rootfs", "readonly": True},
        "process": {
            "terminal": False,
            "user": {"uid": user, "gid": user},
            "args": program,
            "env": [],
            "cwd": layout.WORK,
            "capabilities": {},
            "noNewPrivileges": True,
            "rlimits": [{"type": name, "soft": bound, "hard": bound} for name, bound in limits.items()],
        },
        "mounts": mounts,
        "linux": {"namespaces": [{"type": name} for name in ("pid", "network", "ipc", "uts", "mount")]},
    }


def _write(folder: Path, bundle: Bundle, placed: layout.Layout) -> None:
    """The bundle on disk: its description, and a root that holds nothing but the places for mounts."""
    root = folder / "rootfs"
    root.mkdir()
    for place in ("/proc", "/dev", layout.WORK, *layout.TEMPORARY):
        (root / place.lstrip("/")).mkdir(parents=True, exist_ok=True)
    for mount in placed.mounts:
        target = root / mount.target.lstrip("/")
        if Path(mount.source).is_dir():
            target.mkdir(parents=True, exist_ok=True)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.touch()
    for link in placed.links:
        (root / link.path.lstrip("/")).symlink_to(link.target)
    (folder / "config.json").write_bytes(msgspec.json.encode(bundle))


def _frame(call: ToolCall, profile: ExecProfile, *, address_space: bool) -> bytes:
    bounds = {"address_space": profile.memory_bytes} if address_space or isinstance(call.call, str) else {}
    return frame(
        call,
        profile,
        fences=("no_new_privileges", "rlimits"),
        given=layout.given(call, profile),
        path=call.path,
        bounds=bounds,
        outward=layout.OUTWARD_INSIDE if profile.egress and call.egress is not None else None,
    )


class _Guest:
    def __init__(
        self,
        process: StdioProcess,
        *,
        layers: tuple[str, ...],
        scratch: Scratch,
        door: Door | None,
        cleaning: list[str] | None,
    ) -> None:
        self.layers = layers
        self._process = process
        self._scratch = scratch
        self._door = door
        self._cleaning = cleaning
        self._answered = False
        self._ended = False

    async def ready(self) -> None:
        await self._process.ready()

    def said(self) -> str:
        return self._process.said()

    async def open_door(self, proxy: str) -> None:
        if self._door is not None:
            await self._door.open_to(proxy)

    async def ask(self, frame: bytes, *, answer_bytes_max: int, logs: bytearray) -> Ending:
        ending = await self._process.ask(frame, answer_bytes_max=answer_bytes_max, logs=logs)
        self._answered = True
        return ending

    async def end(self) -> None:
        if self._door is not None:
            await self._door.close()
        if not (self._answered and self._process.kill()):  # frozen and killed: only its removal is left, for later
            await self._end_whole()

    async def discard(self) -> None:
        await self._end_whole()
        await asyncio.to_thread(self._scratch.remove)

    async def _end_whole(self) -> None:
        if self._ended:
            return
        self._ended = True
        await self._process.end()
        if self._cleaning is not None:  # without a control group, only runsc knows what it started
            running = await asyncio.create_subprocess_exec(
                *self._cleaning, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
            )
            await running.wait()
