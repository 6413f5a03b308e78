"""A function or command in a fresh process of its own, behind every fence the kernel offers without a daemon.

With bubblewrap: a file system of its own with nothing of the host's but what was granted, own process ids, network,
IPC and host name, another user (where the worker is root), no capabilities. Without it: the same namespaces but for
files, which Landlock then guards alone. In both: Landlock, a filter of system calls, resource limits, and a control
group where this machine allows one. Where the kernel refuses these, isolation is `reduced`, and says so.
`open_process_sandbox` tries what holds here; every outcome lists the layers that stood.
"""

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Collection
from typing import Final

import structlog

from agentflow.errors import Unavailable
from sandbox.backends import layout, seccomp
from sandbox.backends.cgroup import Cgroups, find_cgroups
from sandbox.backends.door import Door
from sandbox.backends.exchange import Ending, frame
from sandbox.backends.inmate import perform, user_of
from sandbox.backends.scratch import Scratch, sweep
from sandbox.backends.stdio import StdioProcess
from sandbox.backends.unsupported import refuse_unless
from sandbox.policy import HOME, MIB, ExecProfile, Isolation
from sandbox.tool_call import Command, SandboxOutcome, ToolCall
from sandbox.workspace import hand_over

# What each layer is, by the name that audit records carry. `user` needs root, `cgroup` a group we may write to.
NAMESPACES: Final = ("pid", "network", "ipc", "uts")
INSIDE: Final = ("landlock", "capabilities", "no_new_privileges", "seccomp", "rlimits")
_OWN_NAMESPACES: Final = ("pid", "network", "ipc")  # what the program inside can make for itself
_UNSHARE = {"pid": "--unshare-pid", "network": "--unshare-net", "ipc": "--unshare-ipc", "uts": "--unshare-uts"}
_SPARE_BYTES = 48 * MIB  # bubblewrap, the warden and an interpreter
_SPARE_PROCESSES = 6
_PROCESSES_OF_A_USER = 4096  # where the control group counts a call's processes, this only stops a runaway user

log = structlog.get_logger(__name__)


class IsolationUnavailable(Unavailable):
    code = "AF1403"
    retryable = False

    def __init__(self) -> None:
        super().__init__(
            "A tool demands full isolation, and this machine's kernel refuses the namespaces or Landlock for it.",
            hint="Allow unprivileged user namespaces (kernel 5.13 or newer), or run the worker where they are allowed.",
        )


async def open_process_sandbox() -> "ProcessSandbox":
    """Try the fences once, so that every profile compiled from here on says what will really hold."""
    sweep()
    cgroups = find_cgroups()
    if cgroups is not None:
        cgroups.sweep()
    bubblewrap = shutil.which("bwrap")
    inside = ["landlock", "capabilities", "seccomp"]
    attempts: list[tuple[str | None, list[str]]] = [(None, ["namespaces", *inside])]
    if bubblewrap is not None:
        attempts[:0] = [(bubblewrap, inside), (bubblewrap, inside[1:])]  # older kernels have no Landlock
    reason = ""
    for program, fences in attempts:
        reason = await _refused(program, fences)
        if reason:
            log.info("sandbox.fences_refused", bubblewrap=program is not None, fences=fences, reason=reason)
        else:
            raised = [layer for layer in INSIDE if layer in fences or layer not in inside]
            return ProcessSandbox(isolation="full", bubblewrap=program, inside=raised, cgroups=cgroups)
    log.warning(
        "sandbox.reduced",
        backend="process",
        reason=reason,
        lost="tools reach the network and every file the worker's user may read",
    )
    return ProcessSandbox(isolation="reduced", inside=["rlimits"], cgroups=cgroups)


async def _refused(bubblewrap: str | None, fences: list[str]) -> str:
    """Why these fences cannot stand here; empty if they can."""
    try:
        seccomp.filter_program()
    except OSError as error:
        return str(error)
    argv = [sys.executable, "-I", "-B", layout.CHILD, "probe", *fences]
    if bubblewrap is not None:
        argv[3] = layout.CHILD_INSIDE
        probing = ToolCall("", (), None, "", "", 1, "")  # type: ignore[arg-type]
        nothing = ExecProfile("process", "full", 1, 1, MIB, 1, 1, 1, 1, disk_bytes=MIB)
        argv = [*_bubblewrap(bubblewrap, probing, nothing, frozenset(), door=None), *argv]
    # On a thread, which nobody can cancel: bubblewrap that is killed while it starts leaves a half of itself behind.
    probe = await asyncio.to_thread(subprocess.run, argv, stderr=subprocess.PIPE, env={}, check=False)
    return "" if probe.returncode == 0 else probe.stderr.decode(errors="replace").strip() or "it did not say why"


class ProcessSandbox:
    backend = "process"

    def __init__(
        self,
        *,
        isolation: Isolation,
        bubblewrap: str | None = None,
        inside: Collection[str] = INSIDE,
        cgroups: Cgroups | None = None,
        without: Collection[str] = (),
    ) -> None:
        """`without` leaves layers out: for tests that show what each of them is for."""
        self.isolation = isolation
        self._bubblewrap = bubblewrap
        self._without = frozenset(without)
        self._inside = tuple(layer for layer in inside if layer not in without)
        self._cgroups = None if "cgroup" in self._without else cgroups
        filtered = "seccomp" in self._inside
        self._seccomp = seccomp.filter_program() if filtered else b""
        self._seccomp_without_unix = seccomp.filter_program(unix_sockets=False) if filtered else b""

    def layers(self, isolation: Isolation, *, other_user: bool = True) -> tuple[str, ...]:
        """What stands around a call, by name."""
        standing = ["environment", "rlimits"] if "rlimits" in self._inside else ["environment"]
        if isolation == "full":
            standing += self._inside
            if self._bubblewrap is not None:
                standing += ["bubblewrap", "mount", *NAMESPACES]
                standing += ["user"] if os.getuid() == 0 and other_user else []
                standing += ["user_namespace"] if os.getuid() != 0 else []
            else:
                standing += _OWN_NAMESPACES
        if self._cgroups is not None:
            standing.append("cgroup")
        return tuple(sorted(set(standing) - self._without))

    async def run(self, call: ToolCall, profile: ExecProfile) -> SandboxOutcome:
        if profile.isolation == "full" and self.isolation != "full":
            raise IsolationUnavailable
        refuse_unless(call, "process", python=True, command=True)
        inmate = await self._start(call, profile)
        try:
            return await perform(
                inmate,
                self._frame(call, profile, home=inmate.home),
                profile,
                backend=self.backend,
                isolation=profile.isolation,
                proxy=call.egress,
            )
        finally:
            await asyncio.shield(inmate.discard())

    async def close(self) -> None:
        """Nothing is held between calls."""

    def _wrapped(self, profile: ExecProfile) -> bool:
        return self._bubblewrap is not None and profile.isolation == "full"

    async def _start(self, call: ToolCall, profile: ExecProfile) -> "_Process":
        scratch, door = None, None
        program = [sys.executable, "-I", "-B", layout.CHILD]
        if self._bubblewrap is not None and profile.isolation == "full":
            if call.workspace is not None and self._as_other_user(call, profile):
                await asyncio.to_thread(hand_over, call.workspace, user_of(call.tenant))
            door = Door(call.trusted) if profile.egress and call.egress is not None else None
            program[3] = layout.CHILD_INSIDE
            folder = door.folder if door is not None else None
            program = [*_bubblewrap(self._bubblewrap, call, profile, self._without, door=folder), *program]
        else:
            scratch = Scratch()
        cgroup = None
        if self._cgroups is not None:
            cgroup = self._cgroups.create(profile, spare_bytes=_SPARE_BYTES, spare_processes=_SPARE_PROCESSES)
        cwd = "/" if scratch is None else str(scratch.path)
        process = await StdioProcess.start(
            program, cwd=cwd, env=profile.environment, cgroup=cgroup, wrapped=scratch is None
        )
        layers = self.layers(profile.isolation, other_user=self._as_other_user(call, profile))
        return _Process(process, layers=layers, scratch=scratch, door=door)

    def _as_other_user(self, call: ToolCall, profile: ExecProfile) -> bool:
        """Whether the tool becomes the tenant's user: not where what it was granted is open to the worker's only."""
        if os.getuid() != 0 or profile.writable or "user" in self._without:
            return False
        return all(layout.open_to_others(path) for path in (*call.path, *profile.readable))

    def _frame(self, call: ToolCall, profile: ExecProfile, *, home: str | None) -> bytes:
        """`home` is the folder on the host that stands for the profile's, where the tool has no files of its own."""
        full, wrapped = profile.isolation == "full", self._wrapped(profile)
        fences = {layer for layer in self._inside if full or layer == "rlimits"}
        if full and not wrapped:
            fences.add("namespaces")
        if wrapped and self._as_other_user(call, profile):
            fences.add("user")
        bounds = {}
        if self._cgroups is None or not isinstance(call.call, Command):
            bounds["address_space"] = profile.memory_bytes  # some commands reserve far more than they ever use
        if full:
            # Counted per user or user namespace; outside of one it would count the worker's own threads.
            bounds["processes"] = profile.processes_max if self._cgroups is None else _PROCESSES_OF_A_USER
        egress = call.egress if profile.egress else None
        workspace = layout.WORKSPACE if wrapped and call.workspace is not None else call.workspace
        return frame(
            call,
            profile,
            fences=fences,
            given=layout.given(call, profile)
            if wrapped
            else {
                "AGENTFLOW_EGRESS": egress,
                "AGENTFLOW_WORKSPACE": workspace,
                "HOME": home if profile.environment.get("HOME") == HOME else None,
            },
            path=call.path,
            readable=(layout.DOOR,) if wrapped and egress else (),
            writable=(*(layout.TEMPORARY if wrapped else ()), *(() if workspace is None else (workspace,))),
            bounds=bounds,
            user=user_of(call.tenant),
            seccomp=self._seccomp if wrapped or egress else self._seccomp_without_unix,
            dies_with_parent=not wrapped,
            outward=layout.OUTWARD_INSIDE if wrapped and egress else None,
        )


class _Process:
    """The started process with its folder and its door."""

    def __init__(
        self, process: StdioProcess, *, layers: tuple[str, ...], scratch: Scratch | None, door: Door | None
    ) -> None:
        self.layers = layers
        self._process = process
        self._scratch = scratch
        self._door = door

    @property
    def home(self) -> str | None:
        return None if self._scratch is None else str(self._scratch.path)

    async def ready(self) -> None:
        await self._process.ready()

    async def open_door(self, proxy: str) -> None:
        if self._door is not None:
            await self._door.open_to(proxy)

    async def ask(self, frame: bytes, *, answer_bytes_max: int, logs: bytearray) -> Ending:
        return await self._process.ask(frame, answer_bytes_max=answer_bytes_max, logs=logs)

    async def end(self) -> None:
        await self._process.end()

    async def discard(self) -> None:
        if self._door is not None:
            await self._door.close()
        if self._scratch is not None:
            await asyncio.to_thread(self._scratch.remove)


def _bubblewrap(
    program: str, call: ToolCall, profile: ExecProfile, without: frozenset[str], *, door: str | None
) -> list[str]:
    """The command line up to the program inside."""
    argv = [program, "--die-with-parent", "--new-session", "--clearenv", "--unshare-cgroup-try"]
    argv += [_UNSHARE[name] for name in NAMESPACES if name not in without]
    if "uts" not in without:
        argv += ["--hostname", "sandbox"]
    if os.getuid() == 0:
        argv += ["--cap-drop", "ALL"]
        # To become the tenant's user, to end the tool, and to listen for it on the sandbox's own loopback.
        for capability in ("CAP_SETUID", "CAP_SETGID", "CAP_KILL", *(["CAP_NET_BIND_SERVICE"] if door else [])):
            argv += ["--cap-add", capability]
    else:
        argv += ["--unshare-user", "--disable-userns"]
    if "mount" in without:
        argv += ["--bind", "/", "/", "--ro-bind", layout.CHILD, layout.CHILD_INSIDE]
        return [*argv, "--proc", "/proc", "--dev", "/dev", "--chdir", layout.TEMPORARY[0], "--"]
    placed = layout.interpreter_layout(call, profile, door=door)
    argv += ["--proc", "/proc", "--dev", "/dev"]
    for place in (layout.WORK, *layout.TEMPORARY):
        argv += ["--size", str(profile.disk_bytes), "--perms", "1777", "--tmpfs", place]
    for link in placed.links:
        argv += ["--symlink", link.target, link.path]
    for folder in layout.folders_above(placed.mounts):
        argv += ["--dir", folder]  # made by name: bubblewrap would close the ones it makes by itself to other users
    for mount in placed.mounts:
        argv += ["--bind" if mount.writable else "--ro-bind", mount.source, mount.target]
    return [*argv, "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", layout.WORK, "--"]
