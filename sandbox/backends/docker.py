"""A call in a container of its own, through the Docker daemon: no network, nothing writable but memory, no privileges.

`hardening` is the whole of what a container gets, in one place, and a test holds it to the letter. Functions and
commands run in the deployment's image by the program inside (`child`); container tools run their own image's command.
With the runtime `runsc` the same containers run on gVisor's kernel; see `gvisor`. Images are named by digest.
"""

import asyncio
import contextlib
import re
import socket
import struct
from collections.abc import AsyncIterator, Callable, Collection
from typing import Any

import docker
import docker.errors
import msgspec
import requests.exceptions

from agentflow.canonical import canonical
from agentflow.errors import Rejected
from sandbox.backends import layout, seccomp
from sandbox.backends.daemon import DockerOptions
from sandbox.backends.door import Door
from sandbox.backends.exchange import LOG_BYTES_MAX, Ending, Report, TooLarge, frame, is_complete
from sandbox.backends.inmate import perform, user_of
from sandbox.backends.pool import Berth, Pool, berth
from sandbox.backends.scratch import sweep
from sandbox.backends.unsupported import SandboxUnavailable, refuse_unless
from sandbox.policy import MIB, ExecProfile, Isolation
from sandbox.tool_call import Container, SandboxOutcome, ToolCall
from sandbox.workspace import hand_over

LABEL = "agentflow.sandbox"
_DIGEST = re.compile(r"(.+@)?sha256:[0-9a-f]{64}")
_HEADER = struct.Struct(">BxxxL")  # how Docker tells stdout from stderr on one connection
_STDOUT = 1
_OUTWARD = "-egress"  # what the name of the runtime ends with that lets a call reach its socket
_READY = b"ready\n"
_ATTACHED = {"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1}
_ANSWER_S = 20.0
_SPARE = (32 * MIB, 4)  # memory and processes of what fences the tool
_SPARE_OF_GVISOR = (160 * MIB, 512)  # its kernel is a process with threads, counted with the tool's
LAYERS = (
    *("capabilities", "cgroup", "environment", "image_by_digest", "ipc", "mount", "network", "no_new_privileges"),
    *("pid", "read_only", "rlimits", "seccomp", "user", "uts"),
)


class ImageNotPinned(Rejected):
    code = "AF1414"

    def __init__(self, image: str) -> None:
        super().__init__(
            f"The image {image!r} is not named by digest.",
            hint="A tag can be moved to other content. Write name@sha256:…, or the image's id, which "
            "`docker inspect --format '{{.Id}}' <image>` prints.",
        )


async def open_docker_sandbox(options: DockerOptions) -> "DockerSandbox":
    """Reach the daemon and find the image, or refuse."""
    sweep()
    name = "docker" if options.runtime is None else "gvisor"
    try:
        _knock(options.host)
        client = docker.APIClient(base_url=options.host, version="auto", timeout=_ANSWER_S)
    except (docker.errors.DockerException, OSError) as error:
        raise SandboxUnavailable(
            name,
            f"no Docker daemon answers at {options.host} ({error})",
            hint="Start dockerd (apt-get install -y docker.io on Debian), or set AF_DOCKER_HOST.",
        ) from None
    info = await asyncio.to_thread(client.info)
    if options.runtime is not None and options.runtime not in info.get("Runtimes", {}):
        raise SandboxUnavailable(
            name,
            f"the Docker daemon knows no runtime {options.runtime!r}",
            hint="Install runsc and add it to the daemon's `runtimes`.",
        )
    if options.image:
        _pinned(options.image)
        try:
            await asyncio.to_thread(client.inspect_image, options.image)
        except docker.errors.DockerException:
            raise SandboxUnavailable(
                name, f"the daemon has no image {options.image}", hint="Pull or import it, then set AF_SANDBOX_IMAGE."
            ) from None
    sandbox = DockerSandbox(client, options, runtimes=info.get("Runtimes", {}))
    await sandbox.sweep()
    return sandbox


class DockerSandbox:
    isolation: Isolation = "full"

    def __init__(
        self,
        client: docker.APIClient,
        options: DockerOptions,
        *,
        runtimes: Collection[str] = (),
        loosened: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        """`runtimes` are what the daemon knows.

        `loosened` may take back parts of the hardening: for tests that show what each part is for.
        """
        self.backend = "docker" if options.runtime is None else "gvisor"
        self._client = client
        self._options = options
        self._runtimes = runtimes
        self._loosened = loosened
        self._pool = Pool(self._start, idle_max=options.idle_max)
        # Docker's own filter lets a process trace another of its user; ours, behind it, does not. gVisor has no need.
        self._seccomp = seccomp.filter_program() if options.runtime is None else b""
        self._fences = ("no_new_privileges", "rlimits", *(("seccomp",) if self._seccomp else ()))

    async def run(self, call: ToolCall, profile: ExecProfile) -> SandboxOutcome:
        refuse_unless(call, self.backend, python=True, command=True, container=True)
        if isinstance(call.call, Container):
            _pinned(call.call.image)
        elif not self._options.image:
            raise SandboxUnavailable(
                self.backend, "no image was named for functions and commands", hint="Set AF_SANDBOX_IMAGE."
            )
        place = berth(call, profile)
        inmate = await self._pool.take(place)
        try:
            return await perform(
                inmate,
                self._frame(call, profile),
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
        self._client.close()

    async def sweep(self) -> None:
        """Remove containers that ended when their worker was killed: nobody else will."""
        ended = {"label": [LABEL], "status": ["exited", "dead"]}
        for container in await asyncio.to_thread(self._client.containers, all=True, filters=ended):
            await _quietly(self._client.remove_container, container["Id"], force=True, v=True)

    def _frame(self, call: ToolCall, profile: ExecProfile) -> bytes:
        if isinstance(call.call, Container):
            return canonical(call.input)
        return frame(
            call,
            profile,
            fences=self._fences,
            seccomp=self._seccomp,
            given=layout.given(call, profile),
            path=call.path,
            contained=True,
            outward=layout.OUTWARD_INSIDE if profile.egress and call.egress is not None else None,
        )

    def _runtime(self, outward: bool) -> str | None:
        """gVisor opens sockets of the host only where its runtime says so, and only calls with a way out get that."""
        runtime = self._options.runtime
        if runtime is None or not outward:
            return runtime
        if f"{runtime}{_OUTWARD}" not in self._runtimes:
            raise SandboxUnavailable(
                self.backend,
                f"the Docker daemon knows no runtime `{runtime}{_OUTWARD}`, which tools with a granted host need",
                hint=f"Add it to the daemon's `runtimes`: {runtime} with the argument --host-uds=open.",
            )
        return f"{runtime}{_OUTWARD}"

    async def _start(self, place: Berth, early: bool) -> "_Contained":
        call, profile = place.call, place.profile
        user = user_of(call.tenant)
        if call.workspace is not None:
            await asyncio.to_thread(hand_over, call.workspace, user)
        door = Door(call.trusted) if profile.egress and call.egress is not None else None
        mounts = layout.granted(call, profile, door=door.folder if door is not None else None)
        if isinstance(call.call, Container):
            image, command, own = call.call.image, list(call.call.argv) or None, True
        else:
            mounts.append(layout.Mount(layout.CHILD, layout.CHILD_INSIDE))
            program = ["python3", "-I", "-B", layout.CHILD_INSIDE, *(["wait"] if early else [])]
            image, command, own = self._options.image, program, False
        config = hardening(profile, mounts, user=user, runtime=self._runtime(door is not None))
        if self._loosened is not None:
            self._loosened(config)
        identity = config.pop("User", f"{user}:{user}")
        environment = config.pop("Env", {**profile.environment, **layout.given(call, profile)} if own else {})

        leads = own and door is not None and self._options.runtime is None and bool(self._options.image)

        def start() -> tuple[list[str], Any]:
            made: list[str] = []
            try:
                if leads:
                    made.append(self._start_leader(profile, mounts, user))
                    config["NetworkMode"] = f"container:{made[0]}"
                    config.pop("Sysctls", None)  # they are the leader's now, whose network this is
                shared = config["NetworkMode"].startswith("container:")
                made.insert(
                    0,
                    self._client.create_container(
                        image,
                        command,
                        hostname=None if shared else "sandbox",
                        user=identity,
                        environment=environment,
                        stdin_open=True,
                        labels={LABEL: "1"},
                        working_dir=layout.WORK,
                        entrypoint=None if own else [],
                        host_config=config,
                        network_disabled=config["NetworkMode"] == "none",
                    )["Id"],
                )
                attached = self._client.attach_socket(made[0], params=_ATTACHED)
                self._client.start(made[0])
            except Exception:
                for container in made:
                    with contextlib.suppress(docker.errors.DockerException):
                        self._client.remove_container(container, force=True, v=True)
                raise
            return made, attached

        starting = asyncio.ensure_future(asyncio.to_thread(start))
        try:
            containers, attached = await asyncio.shield(starting)
        except docker.errors.DockerException as error:
            if door is not None:
                await door.close()
            raise SandboxUnavailable(self.backend, str(error), hint="See the daemon's log.") from None
        except asyncio.CancelledError:
            # A thread cannot be stopped: whoever cancels waits until what it started is gone again.
            containers, attached = await starting
            unwanted = _Contained(self._client, containers, attached, door=door, own=own)
            await unwanted.end()
            await unwanted.discard()
            raise
        return _Contained(self._client, containers, attached, door=door, own=own)

    def _start_leader(self, profile: ExecProfile, mounts: list[layout.Mount], user: int) -> str:
        """A container of ours whose empty network an image of somebody else's joins: it leads to the socket."""
        outward = [mount for mount in mounts if mount.target in (layout.DOOR, layout.OUTWARD_INSIDE)]
        made: str = self._client.create_container(
            self._options.image,
            ["python3", "-I", "-B", layout.OUTWARD_INSIDE, layout.EGRESS],
            user=f"{user}:{user}",
            labels={LABEL: "1"},
            entrypoint=[],
            host_config=hardening(profile, outward, user=user),
            network_disabled=True,
        )["Id"]
        try:
            attached = self._client.attach_socket(made, params=_ATTACHED)
            listening: socket.socket = getattr(attached, "_sock", attached)
            listening.settimeout(_ANSWER_S)
            self._client.start(made)
            heard = b""
            while _READY not in heard and (part := listening.recv(64)):  # or its end: then the socket is still there
                heard += part
            for end in (attached, listening):
                end.close()
        except Exception:
            self._client.remove_container(made, force=True, v=True)
            raise
        return made


def hardening(
    profile: ExecProfile, mounts: list[layout.Mount], *, user: int, runtime: str | None = None
) -> dict[str, Any]:
    """All that a container may have. What is not here is Docker's default, which keeps its own filter of calls."""
    spare_bytes, spare_processes = _SPARE if runtime is None else _SPARE_OF_GVISOR
    memory_bytes = profile.memory_bytes + profile.disk_bytes + spare_bytes
    # Owned, because runc gives the mount the mode of the image's folder of that name, whatever is asked for.
    owner = f"uid={user},gid={user},mode=0700"
    room = f"rw,nosuid,nodev,noexec,size={profile.disk_bytes},nr_inodes={profile.inodes_max},{owner}"
    config: dict[str, Any] = {
        "Binds": [f"{mount.source}:{mount.target}:{'rw' if mount.writable else 'ro'}" for mount in mounts],
        "CapDrop": ["ALL"],
        "IpcMode": "none",
        "LogConfig": {"Type": "none", "Config": {}},
        "Memory": memory_bytes,
        "MemorySwap": memory_bytes,  # the sum: no swap beside it
        "NanoCpus": int(profile.cpus * 1_000_000_000),
        "NetworkMode": "none",
        "PidsLimit": profile.processes_max + spare_processes,
        "Privileged": False,
        "ReadonlyRootfs": True,
        "SecurityOpt": ["no-new-privileges"],
        "Tmpfs": {layout.WORK: room, layout.TEMPORARY[0]: room},
        "Ulimits": [
            {"Name": "core", "Soft": 0, "Hard": 0},
            {"Name": "fsize", "Soft": profile.file_bytes, "Hard": profile.file_bytes},
            {"Name": "nofile", "Soft": profile.files_max, "Hard": profile.files_max},
        ],
    }
    if profile.egress:
        # For its own loopback only: what answers there for the egress proxy listens where programs expect it.
        config["Sysctls"] = {"net.ipv4.ip_unprivileged_port_start": "0"}
    if runtime is not None:
        config["Runtime"] = runtime
    return config


class _Contained:
    layers = LAYERS

    def __init__(
        self, client: docker.APIClient, containers: list[str], attached: Any, *, door: Door | None, own: bool
    ) -> None:
        """The first of `containers` is the tool's; another one only leads it to its door."""
        self._client = client
        self._container = containers[0]
        self._containers = containers
        self._attached = attached  # keeps the connection from being collected
        self._socket: socket.socket = getattr(attached, "_sock", attached)
        self._socket.setblocking(False)
        self._door = door
        self._own = own
        self._over = False

    async def ready(self) -> None:
        if self._own:
            return  # it reads its input when it likes
        async with asyncio.timeout(_ANSWER_S):
            async for stream, data in self._heard():
                if stream == _STDOUT and data == _READY:
                    return
        raise ProcessLookupError("it ended before it was ready")

    async def open_door(self, proxy: str) -> None:
        if self._door is not None:
            await self._door.open_to(proxy)

    async def ask(self, frame: bytes, *, answer_bytes_max: int, logs: bytearray) -> Ending:
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(self._socket, frame)
        if self._own:
            self._socket.shutdown(socket.SHUT_WR)
        answer = bytearray()
        async for stream, data in self._heard():
            if stream != _STDOUT:
                logs += data[: LOG_BYTES_MAX - len(logs)]
                continue
            answer += data
            if len(answer) > answer_bytes_max:
                raise TooLarge
            if not self._own and is_complete(answer):
                self._over = True
                return Ending(bytes(answer))
        self._over = True
        state = await asyncio.to_thread(self._ended)
        clean, killed = state["ExitCode"] == 0, bool(state.get("OOMKilled"))
        if self._own:
            return Ending(_as_answer(bytes(answer), state["ExitCode"]), out_of_memory=killed)
        return Ending(bytes(answer), clean=clean, out_of_memory=killed)

    async def end(self) -> None:
        if not self._over:
            await _quietly(self._client.kill, self._container)
            self._over = True
        for leader in self._containers[1:]:
            await _quietly(self._client.kill, leader)
        if self._door is not None:
            await self._door.close()
        for end in (self._attached, self._socket):
            with contextlib.suppress(OSError):
                end.close()

    async def discard(self) -> None:
        for container in self._containers:
            await _quietly(self._client.remove_container, container, force=True, v=True)

    def _ended(self) -> dict[str, Any]:
        self._client.wait(self._container, timeout=_ANSWER_S)
        state: dict[str, Any] = self._client.inspect_container(self._container)["State"]
        return state

    async def _heard(self) -> AsyncIterator[tuple[int, bytes]]:
        """What the container writes, piece by piece, until it has ended."""
        loop = asyncio.get_running_loop()
        pending = bytearray()
        while data := await loop.sock_recv(self._socket, 1 << 16):
            pending += data
            while len(pending) >= _HEADER.size:
                stream, length = _HEADER.unpack_from(pending)
                if len(pending) < _HEADER.size + length:
                    break
                yield stream, bytes(pending[_HEADER.size : _HEADER.size + length])
                del pending[: _HEADER.size + length]


def _as_answer(stdout: bytes, exit_code: int) -> bytes:
    """A container's own program knows nothing of our two lines: write them for it."""
    answer: dict[str, Any]
    if exit_code != 0:
        answer = {"error": f"the container ended with exit code {exit_code}"}
    else:
        try:
            answer = {"output": msgspec.json.decode(stdout)}
        except (msgspec.DecodeError, RecursionError) as error:
            answer = {"invalid": str(error)}
    return msgspec.json.encode(answer) + b"\n" + msgspec.json.encode(Report(0, 0.0, 0))


def _knock(host: str) -> None:
    """See whether anybody listens: the client leaves its socket open when nobody does."""
    if host.startswith("unix://"):
        with socket.socket(socket.AF_UNIX) as door:
            door.connect(host.removeprefix("unix://"))


def _pinned(image: str) -> None:
    if not _DIGEST.fullmatch(image):
        raise ImageNotPinned(image)


async def _quietly(work: Callable[..., Any], *arguments: Any, **options: Any) -> None:
    """It may have ended or gone by itself meanwhile."""
    with contextlib.suppress(docker.errors.DockerException, requests.exceptions.RequestException):
        await asyncio.to_thread(work, *arguments, **options)
