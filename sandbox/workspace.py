"""The folder of an execution: what is in it, packed to be kept elsewhere and unpacked again, led astray by nothing.

A tool may leave anything there: links that point outside, devices, pipes, names that climb; and an archive may claim
anything. Nothing here follows any of it: every step into a tree is made from an open folder, without links. Regular
files, folders and links (as what they say) are kept; pipes, sockets and devices are not.
"""

import hashlib
import os
import stat
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

import msgspec

from agentflow.canonical import sha256_hex
from agentflow.errors import Rejected
from sandbox.policy import MIB

BYTES_MAX = 256 * MIB
_CHUNK_BYTES = 1 << 20
_DEPTH_MAX = 64
_ENTRIES_MAX = 100_000
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MAKE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_EXECUTABLE, _PLAIN = 0o755, 0o644


class UnsafeArtefact(Rejected):
    code = "AF1413"

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(
            f"{path!r} cannot be kept of the workspace: {reason}.",
            hint="Only files, folders and links below the workspace are kept; have the tool leave nothing else.",
        )


class Entry(msgspec.Struct, frozen=True):
    """One thing in a workspace. `size` and `digest` are those of a regular file, or the digest of what a link says."""

    path: str
    kind: str  # file, folder, link
    size: int = 0
    digest: str = ""


class _Found(msgspec.Struct, frozen=True):
    """One thing as it is met: `folder` is open while it is looked at, and only then."""

    path: str
    name: str
    folder: int
    status: os.stat_result


def entries(workspace: str, *, bytes_max: int = BYTES_MAX) -> list[Entry]:
    """Everything that is kept, sorted by path."""
    found = [_entry(each) for each in _kept(workspace, bytes_max)]
    return sorted(found, key=lambda entry: entry.path)


def digest(workspace: str, *, bytes_max: int = BYTES_MAX) -> str:
    """The workspace as one hash: the same content gives the same one, on every machine."""
    return sha256_hex([msgspec.to_builtins(entry) for entry in entries(workspace, bytes_max=bytes_max)])


def usage(workspace: str) -> int:
    """The bytes it takes on disk now, while a tool may be writing."""
    total = 0
    for _, _, files, folder in os.fwalk(workspace, follow_symlinks=False, onerror=None):
        for name in files:
            try:
                total += os.stat(name, dir_fd=folder, follow_symlinks=False).st_blocks * 512
            except OSError:
                continue  # gone since it was listed
    return total


def pack(workspace: str, target: BinaryIO, *, bytes_max: int = BYTES_MAX) -> None:
    """What is kept, as a tar archive: without owners, times and set-user-id bits."""
    with tarfile.open(fileobj=target, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for found in _kept(workspace, bytes_max):
            member = tarfile.TarInfo(found.path)
            mode = found.status.st_mode
            if stat.S_ISREG(mode):
                member.size = found.status.st_size
                member.mode = _EXECUTABLE if mode & stat.S_IXUSR else _PLAIN
                with _opened(found) as file:
                    try:
                        archive.addfile(member, file)
                    except OSError as error:
                        raise UnsafeArtefact(found.path, f"it changed while it was read ({error})") from None
                continue
            member.mode = _EXECUTABLE
            member.type = tarfile.DIRTYPE if stat.S_ISDIR(mode) else tarfile.SYMTYPE
            if stat.S_ISLNK(mode):
                member.linkname = os.readlink(found.name, dir_fd=found.folder)
            archive.addfile(member)


def unpack(source: BinaryIO, folder: str, *, bytes_max: int = BYTES_MAX) -> None:
    """Into an empty folder. An archive that would write anywhere else, or anything else, is refused at that member."""
    top = os.open(folder, _OPEN | os.O_DIRECTORY)
    count, written = 0, 0
    try:
        with tarfile.open(fileobj=source, mode="r:", errorlevel=2) as archive:
            for member in archive:
                count, written = count + 1, written + member.size
                if count > _ENTRIES_MAX or written > bytes_max:
                    raise UnsafeArtefact(member.name, "the archive holds too much")
                _unpack_one(archive, member, top)
    except (tarfile.TarError, UnicodeError, ValueError) as error:
        raise UnsafeArtefact("the archive", f"it cannot be read ({error})") from None
    finally:
        os.close(top)


def hand_over(workspace: str, user: int) -> None:
    """Make the workspace the tenant's user's, so that a tool may write there. Links are not followed."""
    if os.getuid() != 0 or os.stat(workspace).st_uid == user:  # noqa: PTH116
        return
    for _, folders, files, descriptor in os.fwalk(workspace, follow_symlinks=False):
        for name in (*folders, *files):
            os.chown(name, user, user, dir_fd=descriptor, follow_symlinks=False)
    os.chown(workspace, user, user, follow_symlinks=False)


def _kept(workspace: str, bytes_max: int) -> Iterator[_Found]:
    """Files, folders and links; refused where there is too much, or a file that may have a name outside."""
    folder = os.open(workspace, _OPEN | os.O_DIRECTORY)
    count, total = 0, 0
    try:
        for found in _walk(folder, "", 0):
            count += 1
            if count > _ENTRIES_MAX:
                raise UnsafeArtefact(workspace, f"it holds more than {_ENTRIES_MAX} files")
            mode = found.status.st_mode
            if stat.S_ISREG(mode):
                total += found.status.st_size
                if total > bytes_max:
                    raise UnsafeArtefact(found.path, f"with it the workspace has more than {bytes_max // MIB} MiB")
                if found.status.st_nlink > 1 and _has_name_outside(workspace, found.status):
                    raise UnsafeArtefact(found.path, "it has another name, outside of the workspace")
            if stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode):
                yield found
    finally:
        os.close(folder)


def _has_name_outside(workspace: str, file: os.stat_result) -> bool:
    """Whether a file has fewer names in here than it has at all. Rare, so looked up when it is met."""
    inside = 0
    for _, _, files, folder in os.fwalk(workspace, follow_symlinks=False):
        found = (os.stat(name, dir_fd=folder, follow_symlinks=False) for name in files)
        inside += sum((status.st_dev, status.st_ino) == (file.st_dev, file.st_ino) for status in found)
    return inside < file.st_nlink


def _walk(folder: int, above: str, depth: int) -> Iterator[_Found]:
    if depth > _DEPTH_MAX:
        raise UnsafeArtefact(above, f"it lies deeper than {_DEPTH_MAX} folders")
    for name in sorted(os.listdir(folder)):
        path = f"{above}{name}"
        try:
            path.encode()
        except UnicodeEncodeError:
            raise UnsafeArtefact(repr(path), "its name is no text") from None
        found = _Found(path, name, folder, os.stat(name, dir_fd=folder, follow_symlinks=False))
        yield found
        if stat.S_ISDIR(found.status.st_mode):
            below = os.open(name, _OPEN | os.O_DIRECTORY, dir_fd=folder)
            try:
                yield from _walk(below, f"{path}/", depth + 1)
            finally:
                os.close(below)


def _entry(found: _Found) -> Entry:
    mode = found.status.st_mode
    if stat.S_ISDIR(mode):
        return Entry(found.path, "folder")
    hashed = hashlib.sha256()
    if stat.S_ISLNK(mode):
        hashed.update(os.fsencode(os.readlink(found.name, dir_fd=found.folder)))
        return Entry(found.path, "link", digest=hashed.hexdigest())
    with _opened(found) as file:
        while part := file.read(_CHUNK_BYTES):
            hashed.update(part)
    return Entry(found.path, "file", found.status.st_size, hashed.hexdigest())


@contextmanager
def _opened(found: _Found) -> Iterator[BinaryIO]:
    try:
        file = os.open(found.name, _OPEN, dir_fd=found.folder)
    except OSError as error:
        raise UnsafeArtefact(found.path, error.strerror or "it cannot be opened") from None
    with os.fdopen(file, "rb") as opened:
        status = os.fstat(file)
        if (status.st_dev, status.st_ino) != (found.status.st_dev, found.status.st_ino):
            raise UnsafeArtefact(found.path, "it was replaced while it was read")
        yield opened


def _unpack_one(archive: tarfile.TarFile, member: tarfile.TarInfo, top: int) -> None:
    parts = member.name.removesuffix("/").split("/")
    if member.name.startswith("/") or "\0" in member.name or any(part in ("", ".", "..") for part in parts):
        raise UnsafeArtefact(member.name, "its name leaves the workspace")
    if len(parts) > _DEPTH_MAX + 1:
        raise UnsafeArtefact(member.name, f"it lies deeper than {_DEPTH_MAX} folders")
    folder = os.dup(top)
    try:
        for part in parts[:-1]:
            below = os.open(part, _OPEN | os.O_DIRECTORY, dir_fd=folder)
            os.close(folder)
            folder = below
        _make(archive, member, folder, parts[-1])
    except OSError as error:
        raise UnsafeArtefact(member.name, error.strerror or "it cannot be written") from None
    finally:
        os.close(folder)


def _make(archive: tarfile.TarFile, member: tarfile.TarInfo, folder: int, name: str) -> None:
    if member.isdir():
        os.mkdir(name, _EXECUTABLE, dir_fd=folder)
    elif member.issym():
        os.symlink(member.linkname, name, dir_fd=folder)
    elif member.isreg() and not member.issparse():
        content = archive.extractfile(member)
        assert content is not None
        mode = _EXECUTABLE if member.mode & stat.S_IXUSR else _PLAIN
        with os.fdopen(os.open(name, _MAKE, mode, dir_fd=folder), "wb") as file:
            while part := content.read(_CHUNK_BYTES):
                file.write(part)
    else:
        raise UnsafeArtefact(member.name, "it is neither a file nor a folder nor a link")
