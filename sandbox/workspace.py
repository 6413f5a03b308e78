"""The folder of an execution: whose it is, what is in it, and taking files out of it without being led astray.

A tool may leave anything there: links that point outside, devices, pipes, names that climb. Nothing here follows
any of it: every step into the tree is made from an open folder, without links, and only regular files count.
"""

import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import msgspec

from agentflow.canonical import sha256_hex
from agentflow.contracts.step import StepFault
from agentflow.errors import Rejected

_CHUNK_BYTES = 1 << 20
_DEPTH_MAX = 64
_ENTRIES_MAX = 100_000
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class UnsafeArtefact(Rejected):
    code = "AF1413"

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(
            f"{path!r} cannot be taken out of the workspace: {reason}.",
            hint="Only regular files below the workspace can be taken out; have the tool write one.",
        )


class Entry(msgspec.Struct, frozen=True):
    """One thing in a workspace. `size` and `digest` are those of a regular file."""

    path: str
    kind: str  # file, folder, link, other
    size: int = 0
    digest: str = ""


def entries(workspace: str) -> list[Entry]:
    """Everything below, sorted by path. Links are listed as what they say, never followed."""
    folder = os.open(workspace, _OPEN | os.O_DIRECTORY)
    try:
        found = []
        for entry in _walk(folder, "", 0):
            found.append(entry)
            if len(found) > _ENTRIES_MAX:
                raise UnsafeArtefact(workspace, f"it holds more than {_ENTRIES_MAX} files")
        return sorted(found, key=lambda entry: entry.path)
    finally:
        os.close(folder)


def digest(workspace: str) -> str:
    """The workspace as one hash: the same content gives the same one, on every machine."""
    return sha256_hex([msgspec.to_builtins(entry) for entry in entries(workspace)])


def diverged(workspace: str, expected: str) -> StepFault | None:
    """A fault when the workspace is not what the last step left: a step must not act on a lost or altered one."""
    found = digest(workspace) if Path(workspace).is_dir() else "nothing"
    if found == expected:
        return None
    lost = f"The workspace is not what the last step left: expected {expected[:12]}, found {found[:12]}."
    return StepFault("workspace_diverged", lost)


def read_file(workspace: str, path: str, *, bytes_max: int) -> bytes:
    """The content of one regular file below the workspace."""
    parts = path.split("/")
    if path.startswith("/") or "\0" in path or any(part in ("", ".", "..") for part in parts):
        raise UnsafeArtefact(path, "its name leaves the workspace")
    folder = os.open(workspace, _OPEN | os.O_DIRECTORY)
    try:
        for part in parts[:-1]:
            below = os.open(part, _OPEN | os.O_DIRECTORY, dir_fd=folder)
            os.close(folder)
            folder = below
        file = os.open(parts[-1], _OPEN, dir_fd=folder)
    except OSError as error:
        raise UnsafeArtefact(path, error.strerror or "it cannot be opened") from None
    finally:
        os.close(folder)
    try:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            raise UnsafeArtefact(path, "it is no regular file")
        if status.st_nlink > 1:
            raise UnsafeArtefact(path, "it has more than one name, and another one may lie elsewhere")
        if status.st_size > bytes_max:
            raise UnsafeArtefact(path, f"it has more than {bytes_max} bytes")
        return _content(file, bytes_max)
    finally:
        os.close(file)


def hand_over(workspace: str, user: int) -> None:
    """Make the workspace the tenant's user's, so that a tool may write there. Links are not followed."""
    if os.getuid() != 0 or os.stat(workspace).st_uid == user:  # noqa: PTH116
        return
    for _, folders, files, descriptor in os.fwalk(workspace, follow_symlinks=False):
        for name in (*folders, *files):
            os.chown(name, user, user, dir_fd=descriptor, follow_symlinks=False)
    os.chown(workspace, user, user, follow_symlinks=False)


def _walk(folder: int, above: str, depth: int) -> Iterator[Entry]:
    if depth > _DEPTH_MAX:
        raise UnsafeArtefact(above, f"it lies deeper than {_DEPTH_MAX} folders")
    for name in os.listdir(folder):
        path = f"{above}{name}"
        try:
            path.encode()
        except UnicodeEncodeError:
            raise UnsafeArtefact(repr(path), "its name is no text") from None
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISDIR(status.st_mode):
            yield Entry(path, "folder")
            below = os.open(name, _OPEN | os.O_DIRECTORY, dir_fd=folder)
            try:
                yield from _walk(below, f"{path}/", depth + 1)
            finally:
                os.close(below)
        elif stat.S_ISREG(status.st_mode):
            yield _file(folder, name, path)
        elif stat.S_ISLNK(status.st_mode):
            said = os.readlink(name, dir_fd=folder)
            yield Entry(path, "link", digest=hashlib.sha256(os.fsencode(said)).hexdigest())
        else:
            yield Entry(path, "other")


def _file(folder: int, name: str, path: str) -> Entry:
    file = os.open(name, _OPEN, dir_fd=folder)
    try:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            return Entry(path, "other")  # replaced since it was listed
        hashed = hashlib.sha256()
        while part := os.read(file, _CHUNK_BYTES):
            hashed.update(part)
        return Entry(path, "file", status.st_size, hashed.hexdigest())
    finally:
        os.close(file)


def _content(file: int, bytes_max: int) -> bytes:
    content = bytearray()
    while part := os.read(file, _CHUNK_BYTES):
        content += part
        if len(content) > bytes_max:
            raise UnsafeArtefact("a file", f"it grew beyond {bytes_max} bytes while it was read")
    return bytes(content)
