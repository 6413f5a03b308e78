"""Bytes in a folder of this machine, or of one that all its users mount. Survives a power cut at any moment.

An object is filled beside its place, flushed to the disk, moved to its name in one step, and the move is flushed too.
"""

import contextlib
import io
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NoReturn

from agentflow.artifacts.keeper import Kept
from agentflow.durable_files import flush_folder
from agentflow.errors import Bug
from agentflow.ports import ArtifactsUnavailable

_SPOOL = ".spool"  # inside, so that moving an object to its place never leaves the file system
_ABANDONED_S = 24 * 3600  # a spool file this old belongs to a process that was killed


class Folder:
    def __init__(self, path: Path) -> None:
        """Makes the folder where there is none yet. Raises `ArtifactsUnavailable` where it cannot be used."""
        self._path = path
        try:
            self._make(path / _SPOOL)
            with tempfile.TemporaryFile(dir=path / _SPOOL):
                pass
        except OSError as error:
            self._away(error)
        self._clear_spool()

    def spool(self) -> BinaryIO:
        try:
            handle, name = tempfile.mkstemp(dir=self._path / _SPOOL, suffix=".part")
            return _SpoolFile(handle, Path(name))
        except OSError as error:
            self._away(error)

    def keep(self, spool: BinaryIO, name: str) -> None:
        """The spool has given its file away afterwards; only closing it is left."""
        target = self._path / name
        try:
            spool.flush()
            os.fsync(spool.fileno())
            self._make(target.parent)
            _path_of(spool).replace(target)
            flush_folder(target.parent)
        except OSError as error:
            self._away(error)

    def read(self, name: str) -> BinaryIO:
        try:
            return (self._path / name).open("rb")
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            raise FileNotFoundError(name) from None
        except OSError as error:
            self._away(error)

    def has(self, name: str) -> bool:
        return (self._path / name).is_file()

    def names(self, prefix: str = "") -> Iterator[Kept]:
        for folder, folders, files in os.walk(self._path / prefix):
            folders[:] = [name for name in folders if not name.startswith(".")]
            for file in files:
                path = Path(folder, file)
                with contextlib.suppress(FileNotFoundError):  # removed while we looked
                    found = path.stat()
                    yield Kept(path.relative_to(self._path).as_posix(), found.st_size, int(found.st_mtime * 1000))

    def remove(self, name: str) -> None:
        path = self._path / name
        try:
            path.unlink(missing_ok=True)
            for parent in path.parents:
                if parent == self._path:
                    break
                parent.rmdir()  # only while it is empty
        except OSError as error:
            if path.exists():
                self._away(error)

    def _make(self, folder: Path) -> None:
        """A new folder exists after a power cut only if the one that holds it was flushed."""
        if folder.is_dir():
            return
        self._make(folder.parent)
        folder.mkdir(exist_ok=True)
        flush_folder(folder.parent)

    def _clear_spool(self) -> None:
        too_old = time.time() - _ABANDONED_S  # noqa: TID251 - compared with the file system's own clock
        for path in (self._path / _SPOOL).iterdir():
            with contextlib.suppress(OSError):
                if path.stat().st_mtime < too_old:
                    path.unlink()

    def _away(self, error: OSError) -> NoReturn:
        raise ArtifactsUnavailable(f"{self._path}: {error.strerror or error}") from error


class _SpoolFile(io.BufferedRandom):
    """Gone when closed, unless it was moved to its place before."""

    def __init__(self, handle: int, path: Path) -> None:
        super().__init__(io.FileIO(handle, "r+b"))
        self.path = path

    def close(self) -> None:
        super().close()
        self.path.unlink(missing_ok=True)


def _path_of(spool: BinaryIO) -> Path:
    if not isinstance(spool, _SpoolFile):
        raise Bug("A folder can keep only what it spooled itself.")
    return spool.path
