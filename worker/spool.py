"""Results on local disk while the bus is away: written and synced, so that a restart resends instead of re-running.

A journal of framed records, one file for each worker process of a machine (a lock says which is taken). Used by
`reporter` alone. What was confirmed is not marked one by one: once nothing is left to send, the file is cut to
nothing. So a crash may bring back what was sent already, and the control plane drops a repeat.
"""

import fcntl
import os
import threading
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import BinaryIO

import msgspec
import structlog

from agentflow.errors import Rejected, Unavailable

log = structlog.get_logger(__name__)

_SLOTS_MAX = 256  # worker processes that may share a folder
_FRAME = 8  # length and checksum, four bytes each
_RECORD_BYTES_MAX = 16 * 1024 * 1024  # a longer one is not ours: the length itself is damaged


class SpoolUnusable(Rejected):
    code = "AF1310"

    def __init__(self, folder: Path, reason: str) -> None:
        super().__init__(
            f"The result spool {folder} cannot be used: {reason}.",
            hint="Give AF_SPOOL_DIR a folder on a local disk that the worker may write to.",
        )


class SpoolFull(Unavailable):
    code = "AF2310"

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"The result spool takes no more: {reason}.",
            hint="Free some disk or raise AF_SPOOL_MB; results stay in memory until the bus is back.",
        )


class SpooledResult(msgspec.Struct, frozen=True, array_like=True):
    dedup_id: str
    subject: str
    message: bytes  # as it travels


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(SpooledResult).decode


class Spool:
    """Blocking. `keep` may run in a thread while `done` is called on the loop."""

    def __init__(self, file: BinaryIO, *, bytes_max: int, left: Iterable[SpooledResult] = ()) -> None:
        self._file = file
        self._bytes_max = bytes_max
        self.left = tuple(left)  # by those who were here before; still to be sent
        self._live = {result.dedup_id: result for result in self.left}
        self._lock = threading.Lock()

    @property
    def unsent(self) -> int:
        return len(self._live)

    def keep(self, results: Sequence[SpooledResult]) -> None:
        """Durable when it returns. All of them, or `SpoolFull` and none."""
        frames = b"".join(_framed(result) for result in results)
        with self._lock:
            try:
                if self._file.seek(0, os.SEEK_END) + len(frames) > self._bytes_max:
                    self.rewrite()
                    if self._file.seek(0, os.SEEK_END) + len(frames) > self._bytes_max:
                        raise SpoolFull(f"{self._bytes_max} bytes are in use")
                _append(self._file, frames)
            except OSError as error:
                raise SpoolFull(error.strerror or str(error)) from None
            self._live.update((result.dedup_id, result) for result in results)

    def done(self, dedup_id: str) -> None:
        """The stream has it."""
        with self._lock:
            if self._live.pop(dedup_id, None) is not None and not self._live:
                self._file.truncate(0)

    def close(self) -> None:
        self._file.close()

    def rewrite(self) -> None:
        """Only what is still unsent."""
        frames = b"".join(_framed(result) for result in self._live.values())
        shadow = Path(self._file.name + ".new")
        with shadow.open("wb") as kept:
            _append(kept, frames)
        # The lock belongs to the open file, so the file stays and its content is replaced; the shadow holds it
        # meanwhile, and is read at the next start if we do not get further.
        self._file.truncate(0)
        _append(self._file, frames)
        shadow.unlink()


def open_spool(folder: Path, *, bytes_max: int) -> Spool:
    """Take a file of our own, and take over what workers that are gone have left in theirs."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        own: BinaryIO | None = None
        left: dict[str, SpooledResult] = {}
        others: list[BinaryIO] = []
        for slot in range(_SLOTS_MAX):
            path = folder / f"results-{slot}.log"
            if own is not None and not path.exists():
                break
            file = _locked(path)
            if file is None:
                continue
            left.update((result.dedup_id, result) for result in _recovered(file))
            if own is None:
                own = file
            else:
                others.append(file)
        if own is None:
            raise SpoolUnusable(folder, f"all its {_SLOTS_MAX} files are taken")
        spool = Spool(own, bytes_max=bytes_max, left=left.values())
        spool.rewrite()  # also cuts a torn end off, which would hide whatever is written after it
        for file in others:
            file.truncate(0)
            file.close()
    except OSError as error:
        raise SpoolUnusable(folder, error.strerror or str(error)) from None
    return spool


def _locked(path: Path) -> BinaryIO | None:
    file = path.open("a+b", buffering=0)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        return None
    return file


def _recovered(file: BinaryIO) -> list[SpooledResult]:
    file.seek(0)
    found = _records(file.read(), file.name)
    shadow = Path(file.name + ".new")
    if shadow.exists():
        found += _records(shadow.read_bytes(), str(shadow))
        shadow.unlink()
    return found


def _records(raw: bytes, name: str) -> list[SpooledResult]:
    """Every whole record from the start on. What follows a damaged one cannot be told apart from damage."""
    found: list[SpooledResult] = []
    at = 0
    while at + _FRAME <= len(raw):
        length = int.from_bytes(raw[at : at + 4])
        record = raw[at + _FRAME : at + _FRAME + length]
        whole = length <= _RECORD_BYTES_MAX and len(record) == length
        if not whole or zlib.crc32(record) != int.from_bytes(raw[at + 4 : at + _FRAME]):
            break
        try:
            found.append(_decode(record))
        except msgspec.DecodeError:
            break
        at += _FRAME + length
    if at < len(raw):
        log.warning("spool.torn", file=Path(name).name, kept=len(found), lost_bytes=len(raw) - at)
    return found


def _framed(result: SpooledResult) -> bytes:
    record = _encode(result)
    return len(record).to_bytes(4) + zlib.crc32(record).to_bytes(4) + record


def _append(file: BinaryIO, frames: bytes) -> None:
    start = file.seek(0, os.SEEK_END)
    try:
        rest = memoryview(frames)
        while rest:
            rest = rest[file.write(rest) :]
        os.fsync(file.fileno())
    except OSError:
        file.truncate(start)  # half a record would hide everything written after it
        raise
