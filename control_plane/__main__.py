"""`python -m control_plane`: serve REST and gRPC until told to stop. Configured by settings alone.

With arguments it does one piece of administration instead (`control_plane.administration`), which is how `af db` works.
"""

import asyncio
import contextlib
import signal
import socket
import ssl
import sys
from collections.abc import Iterator
from importlib.metadata import version

import grpc
import structlog
import uvicorn
import uvloop

from agentflow import limits
from agentflow.errors import Unavailable
from agentflow.garbage import collect_seldom
from agentflow.process_exit import ExitCode, report
from agentflow.settings import Settings, load_settings
from agentflow.telemetry.logs import configure_logs
from control_plane.administration import administer
from control_plane.api.app import create_api
from control_plane.rpc.server import create_server
from control_plane.service import ControlPlane
from control_plane.storage.sealing import FieldSeal
from control_plane.upkeep import upkeep
from control_plane.wiring import control_plane

_log = structlog.get_logger(__name__)

_GOODBYE_S = 3  # how long open requests may take to end once we stop


class AddressTaken(Unavailable):
    code = "AF2004"

    def __init__(self, address: str, setting: str, reason: str) -> None:
        super().__init__(
            f"Cannot listen on {address}: {reason}.",
            hint=f"Stop what listens there, or choose another address with {setting} (port 0 takes a free one).",
        )


class _HttpServer(uvicorn.Server):
    """Leaves signals to us: the control plane must be taken down around the server, not by it."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve(settings: Settings) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with control_plane(settings) as behind:
        await _serve(settings, behind, stop)
    _log.info("control_plane.stopped")


async def _serve(settings: Settings, behind: ControlPlane, stop: asyncio.Event) -> None:
    listening = _listen(settings.http_listen)
    rpc = create_server(behind, describes_itself=settings.grpc_reflection)
    try:
        rpc_port = _add_rpc_port(rpc, settings)
    except RuntimeError:
        raise AddressTaken(settings.grpc_listen, "AF_GRPC_LISTEN", "the address is in use") from None
    app = create_api(behind, version("agentflow"), any_host=settings.serves_beyond())
    http = _HttpServer(
        uvicorn.Config(
            app,
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=_GOODBYE_S,
            ws="websockets-sansio",
            ws_max_size=limits.LIVE_MESSAGE_BYTES_MAX,
            ssl_certfile=settings.tls_cert_file,
            ssl_keyfile=settings.tls_key_file,
            ssl_ca_certs=None if settings.tls_client_ca_file is None else str(settings.tls_client_ca_file),
            ssl_cert_reqs=ssl.CERT_NONE if settings.tls_client_ca_file is None else ssl.CERT_REQUIRED,
        )
    )
    await rpc.start()
    async with asyncio.TaskGroup() as serving:
        serving.create_task(http.serve(sockets=[listening]))
        _log.info(
            "control_plane.ready",
            http=f"{'http' if settings.tls_cert_file is None else 'https'}://{_shown(*listening.getsockname()[:2])}",
            grpc=_shown(settings.grpc_listen.rpartition(":")[0], rpc_port),
        )
        await stop.wait()
        behind.live.close()  # who watches would otherwise keep their connections open
        http.should_exit = True
        await rpc.stop(grace=_GOODBYE_S)


def _add_rpc_port(rpc: grpc.aio.Server, settings: Settings) -> int:
    if settings.tls_cert_file is None or settings.tls_key_file is None:
        return rpc.add_insecure_port(settings.grpc_listen)
    client_ca = settings.tls_client_ca_file
    credentials = grpc.ssl_server_credentials(
        [(settings.tls_key_file.read_bytes(), settings.tls_cert_file.read_bytes())],
        root_certificates=None if client_ca is None else client_ca.read_bytes(),
        require_client_auth=client_ca is not None,
    )
    return rpc.add_secure_port(settings.grpc_listen, credentials)


def _listen(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, int(port)))
    except OSError as error:
        listening.close()
        raise AddressTaken(address, "AF_HTTP_LISTEN", error.strerror or str(error)) from None
    listening.listen()  # from here on nobody is refused: who comes before the server takes over waits a moment
    return listening


def _shown(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}:{port}"


def main() -> int:
    debug = False
    try:
        settings = load_settings()
        debug = settings.log_level == "debug"
        configure_logs(settings.log_level, settings.log_format)
        if sys.argv[1:2] == ["upkeep"]:
            sys.stdout.write(uvloop.run(upkeep(settings, sys.argv[2:])) + "\n")
        elif sys.argv[1:]:
            task = administer(
                sys.argv[1:],
                dsn=settings.db_dsn,
                migrate_dsn=settings.db_migrate_dsn,
                seal=FieldSeal(settings.key_ring()),
                tls=settings.database_tls(),
            )
            sys.stdout.write(uvloop.run(task) + "\n")
        else:
            collect_seldom()
            uvloop.run(serve(settings))
    except Exception as error:  # noqa: BLE001 - the last place that can turn it into a sentence
        return report(error, debug=debug)
    return ExitCode.OK


if __name__ == "__main__":
    sys.exit(main())
