"""The whole platform on one machine: NATS, the control plane and one worker, as supervised children.

What `af dev` and `af demo` run. The services are configured by their `AF_*` variables alone and known here only as
programs that log a line when they are ready; stopping goes backwards, so the worker drains while there is still
somebody to take its results.
"""

import asyncio
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from secrets import token_urlsafe

from agentflow.bus.permissions import WORKER, BusUser, control_plane_user, worker_user
from agentflow.credentials import write_local_credential
from agentflow.devstack.home import Home, locked_home
from agentflow.devstack.nats import ANY_PORT, port_of, start_nats
from agentflow.devstack.process import ChildProcess, ServerDidNotStart
from agentflow.devstack.programs import LOOPBACK
from agentflow.devstack.supervision import OnExit, Supervised, supervised
from agentflow.errors import Rejected
from agentflow.process_exit import ExitCode
from agentflow.settings import inherited_environment, pool_of_worker

_ADMIN_KEY = "admin.key"
_READY_WITHIN_S = 30.0
_DRAIN_S = 10
_GRACE_BEYOND_DRAIN_S = 5.0

_CONTROL_PLANE_READY = re.compile(
    r'^(?=.*"event":\s*"control_plane\.ready").*"http":\s*"http://(?P<address>[^"/]+)', re.MULTILINE
)
_WORKER_READY = re.compile(r'"event":\s*"worker\.ready"')


class ServiceRefused(Rejected):
    """A service found something to correct in what it was given; its own words say what."""

    code = "AF2204"

    def __init__(self, name: str, output: str) -> None:
        words = output[max(0, output.rfind("error[")) :].rstrip()
        super().__init__(f"The {name} refused to start.\n  {words}", hint="Correct what it names, and start again.")


@dataclass(frozen=True, slots=True)
class EmbeddedPlatform:
    api_url: str
    api_key: str  # of the administrator; also in the file `credential` of the home, for `af`
    nats_url: str
    nats: Supervised
    control_plane: Supervised
    worker: Supervised


@asynccontextmanager
async def embedded_platform(
    home: Path,
    *,
    agents_file: Path | None,
    http_listen: str = f"{LOOPBACK}:0",
    nats_port: int = ANY_PORT,
    extra_env: Mapping[str, str] | None = None,
    on_exit: OnExit | None = None,
) -> AsyncIterator[EmbeddedPlatform]:
    """Ready when all three are. NATS and the API keep their ports over restarts, so clients need only reconnect.

    `extra_env` is for the services, and wins over what is set here except where they must meet.
    """
    async with AsyncExitStack() as stack:
        place = stack.enter_context(locked_home(home))
        pool = pool_of_worker(extra_env or {})
        users = control_plane_user(token_urlsafe()), worker_user(WORKER, token_urlsafe(), pool)
        nats = await stack.enter_async_context(supervised(_Nats(place, nats_port, users).start, on_exit))
        nats_url, workers_nats_url = (
            f"nats://{user.name}:{user.password}@{LOOPBACK}:{port_of(nats.process)}" for user in users
        )
        environment = {
            **inherited_environment(),
            "AF_MODE": "dev",
            "AF_DRAIN_S": str(_DRAIN_S),
            "AF_GRPC_LISTEN": f"{LOOPBACK}:0",
            **({} if agents_file is None else {"AF_AGENTS_FILE": str(agents_file)}),
            **(extra_env or {}),
            "AF_HOME": str(place.directory),
            "AF_BOOTSTRAP_FILE": str(place.directory / _ADMIN_KEY),
            "AF_NATS_URL": nats_url,
            "AF_LOG_FORMAT": "json",
        }
        serving = _ControlPlane(place, environment, http_listen)
        working = _Worker(place, {**environment, "AF_NATS_URL": workers_nats_url})
        ahead = await stack.enter_async_context(_begun_ahead(working.start))  # both spend a second on imports
        control_plane = await stack.enter_async_context(supervised(serving.start, on_exit))
        worker = await stack.enter_async_context(supervised(ahead, on_exit))
        api_url = f"http://{serving.address}"
        api_key = (place.directory / _ADMIN_KEY).read_text().strip()
        write_local_credential(place.directory, api_url, api_key)
        yield EmbeddedPlatform(api_url, api_key, nats_url, nats, control_plane, worker)


Start = Callable[[], Awaitable[ChildProcess]]


@asynccontextmanager
async def _begun_ahead(start: Start) -> AsyncIterator[Start]:
    """A child on its way up already, for whoever asks first; asked again, another. Stopped if nobody asked."""
    begun: asyncio.Task[ChildProcess] | None = asyncio.create_task(_started(start))

    async def next_one() -> ChildProcess:
        nonlocal begun
        first, begun = begun, None
        return await (start() if first is None else first)

    try:
        yield next_one
    finally:
        if begun is not None:
            begun.cancel()
            for process in await asyncio.gather(begun, return_exceptions=True):
                if isinstance(process, ChildProcess):
                    await process.stop()


async def _started(start: Start) -> ChildProcess:
    return await start()


class _Nats:
    def __init__(self, home: Home, port: int, users: Sequence[BusUser]) -> None:
        self._home = home
        self._port = port
        self._users = users

    async def start(self) -> ChildProcess:
        process = await start_nats(
            self._home.directory / "nats",
            port=self._port,
            log=self._home.log_of("nats"),
            held=(self._home.lock,),
            users=self._users,
        )
        self._port = port_of(process)
        return process


class _ControlPlane:
    def __init__(self, home: Home, environment: Mapping[str, str], listen: str) -> None:
        self.address = listen
        self._home = home
        self._environment = environment

    async def start(self) -> ChildProcess:
        environment = {**self._environment, "AF_HTTP_LISTEN": self.address}
        process = await _start_service("control_plane", _CONTROL_PLANE_READY, self._home, environment)
        assert process.ready_match is not None
        self.address = process.ready_match["address"]
        return process


class _Worker:
    def __init__(self, home: Home, environment: Mapping[str, str]) -> None:
        self._home = home
        self._environment = environment

    async def start(self) -> ChildProcess:
        return await _start_service("worker", _WORKER_READY, self._home, self._environment)


async def _start_service(
    module: str, ready: re.Pattern[str], home: Home, environment: Mapping[str, str]
) -> ChildProcess:
    name = module.replace("_", "-")
    try:
        return await ChildProcess.start(
            name,
            [sys.executable, "-m", module],
            log=home.log_of(name),
            env=environment,
            ready=ready,
            ready_within_s=_READY_WITHIN_S,
            grace_s=float(environment["AF_DRAIN_S"]) + _GRACE_BEYOND_DRAIN_S,
            held=(home.lock,),
        )
    except ServerDidNotStart as failed:
        if failed.exit_code == ExitCode.REJECTED:
            raise ServiceRefused(name, failed.output) from None
        raise
