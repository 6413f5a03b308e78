"""`af server` and `af worker`: become the service. The process is replaced, so signals reach it directly.

Also how other commands have the control plane's own code do something: in a process of its own.
"""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from agentflow.errors import Rejected

_SERVER_PACKAGES = ("aiosqlite", "alembic", "asyncpg", "cel_expr_python", "fastapi", "sqlalchemy", "uvicorn")


class MissingExtra(Rejected):
    code = "AF1523"

    def __init__(self, what: str, missing: str, extra: str) -> None:
        super().__init__(
            f"{what} needs packages that are not installed ({missing}).", hint=f"pip install 'agentflow[{extra}]'"
        )


def require(what: str, extra: str, *packages: str) -> None:
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingExtra(what, ", ".join(missing), extra)


def require_embedded() -> None:
    require("The embedded platform", "embedded", *_SERVER_PACKAGES)


def require_server() -> None:
    require("The control plane", "server", *_SERVER_PACKAGES)


def server() -> None:
    """Run the control plane: API, orchestrator and storage. Configured by AF_* variables or agentflow.yaml.

    \b
    Examples:
      af server
      AF_DB_DSN=postgres://af:secret@db/af AF_NATS_URL=nats://bus:4222 af server
    """
    require_server()
    _become("control_plane")


def worker(
    agents: Annotated[
        Path | None, typer.Option("--agents", help="The file that names the agents to host.", show_default=False)
    ] = None,
) -> None:
    """Run a worker: it hosts agents and performs the steps sent to them. Ctrl-C lets running steps finish.

    \b
    Examples:
      af worker --agents agents.yaml
      AF_NATS_URL=nats://bus:4222 AF_AGENTS_FILE=agents.yaml af worker
    """
    _become("worker", agents_file=agents)


def _become(module: str, agents_file: Path | None = None) -> None:
    from agentflow.settings import environment_with, load_settings

    load_settings()  # told here, where a fault is one readable message
    changes = {} if agents_file is None else {"AF_AGENTS_FILE": str(agents_file)}
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(sys.executable, [sys.executable, "-m", module], environment_with(changes))  # noqa: S606 - ourselves


def ask_control_plane(*task: str) -> dict[str, Any]:
    """What the control plane's own code answers, in a process of its own: the CLI belongs to the kernel.

    Where it cannot answer it has said so on stderr, and its exit code is ours.
    """
    import msgspec

    from agentflow.settings import load_settings

    require_server()
    load_settings()  # told here, where a fault is one readable message
    asked = subprocess.run([sys.executable, "-m", "control_plane", *task], stdout=subprocess.PIPE, check=False)
    if asked.returncode != 0:
        raise typer.Exit(asked.returncode)
    answer: dict[str, Any] = msgspec.json.decode(asked.stdout.splitlines()[-1])
    return answer
