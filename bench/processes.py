"""What the processes of a platform use of the machine: CPU and memory, as the kernel counts them."""

import os
from collections.abc import Mapping

import psutil

from agentflow.devstack.platform import EmbeddedPlatform


def processes_of(platform: EmbeddedPlatform, *, database: int | None = None) -> dict[str, int]:
    """Process ids by what they are; the driver is us."""
    found = {
        "control plane": platform.control_plane.pid,
        "worker": platform.worker.pid,
        "nats": platform.nats.pid,
        "driver": os.getpid(),
    }
    return found if database is None else {**found, "postgresql": database}


def cpu_s(pids: Mapping[str, int]) -> dict[str, float]:
    """Seconds of CPU each has used so far, with its children (PostgreSQL has one a connection)."""
    return {name: sum(map(_own_cpu_s, _family(name, pid))) for name, pid in pids.items()}


def memory_bytes(pid: int) -> int:
    """What would be free again if the process ended."""
    return int(psutil.Process(pid).memory_full_info().uss)


def _family(name: str, pid: int) -> list[psutil.Process]:
    process = psutil.Process(pid)
    return [process] if name == "driver" else [process, *process.children(recursive=True)]


def _own_cpu_s(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(times.user + times.system)
