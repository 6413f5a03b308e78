"""What a test has started on this machine and not ended: processes, mounts, open files (I20)."""

import os
from collections.abc import Iterator
from pathlib import Path

import psutil

_OPEN_FILES_SLACK = 8  # a pool or a selector that the test session keeps for itself


class Host:
    """This machine before a test, to be compared with it afterwards. Only what belongs to `folder` counts."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)
        self._files = psutil.Process().num_fds()

    def left_behind(self) -> tuple[str, ...]:
        return tuple(self._all())

    def _all(self) -> Iterator[str]:
        for process in psutil.process_iter(["pid", "cmdline", "status"]):
            if process.pid != os.getpid() and self._is_ours(process):
                yield f"process {process.pid} still runs: {' '.join(process.info['cmdline'] or ())[:120]}"
        for mount in psutil.disk_partitions(all=True):
            if mount.mountpoint.startswith(self._folder):
                yield f"{mount.mountpoint} is still mounted"
        grown = psutil.Process().num_fds() - self._files
        if grown > _OPEN_FILES_SLACK:
            yield f"{grown} more files are open than before"

    def _is_ours(self, process: psutil.Process) -> bool:
        if process.info["status"] == psutil.STATUS_ZOMBIE:
            return False
        try:
            said = [*(process.info["cmdline"] or ()), *process.environ().values()]
        except psutil.Error:
            return False
        return any(self._folder in each for each in said)
