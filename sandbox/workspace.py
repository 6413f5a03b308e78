"""The folder of an execution: what is in it, packed to be kept elsewhere and unpacked again, led astray by nothing.

A tool may leave anything there: links that point outside, devices, pipes, names that climb; and an archive may claim
anything. Nothing here follows any of it: every step into a tree is made from an open folder, without links. Regular
files, folders and links (as what they say) are kept; pipes, sockets and devices are not.

What is packed may be a sheet: only what differs from another version, to be unpacked over that one.
"""

import hashlib
import os
import shutil
import stat
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import BinaryIO

import msgspec

from agentflow.canonical import sha256_hex
from agentflow.errors import Rejected
from sandbox.policy import MIB

BYTES_MAX = 256 * MIB
_CHUNK_BYTES = 1 << 20
_BLOCK_BYTES = 8 << 10  # a file that grew is kept from the block on where it began to differ
_DEPTH_MAX = 64
_ENTRIES_MAX = 100_000
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MAKE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_CONTINUE = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_EXECUTABLE, _PLAIN = 0o755, 0o644
_FROM = "AGENTFLOW.from"  # of a member: its content follows so many bytes that are there already


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


class Seen(msgspec.Struct, frozen=True):
    """An entry, and what tells from where on a file differs from another version of it."""

    entry: Entry
    is_executable: bool = False
    beginnings: tuple[bytes, ...] = ()  # hashes of its first block, of its first two, and so on


class Changes(msgspec.Struct, frozen=True):
    """What makes one version of a workspace of another."""

    gone: tuple[str, ...] = ()  # first: what is there no more, or was another kind of thing
    new: dict[str, int] = {}  # then: what is new or differs, and from which byte on
    bytes: int = 0  # of content in what is new

    def __bool__(self) -> bool:
        return bool(self.gone or self.new)


class _Found(msgspec.Struct, frozen=True):
    """One thing as it is met: `folder` is open while it is looked at, and only then."""

    path: str
    name: str
    folder: int
    status: os.stat_result


def entries(workspace: str, *, bytes_max: int = BYTES_MAX) -> list[Entry]:
    """Everything that is kept, sorted by path."""
    return [each.entry for each in look(workspace, bytes_max=bytes_max).values()]


def look(workspace: str, *, bytes_max: int = BYTES_MAX) -> dict[str, Seen]:
    """The same with what `changes` needs, by path."""
    found = [_seen(each) for each in _kept(workspace, bytes_max)]
    return {each.entry.path: each for each in sorted(found, key=lambda each: each.entry.path)}


def digest(workspace: str, *, bytes_max: int = BYTES_MAX) -> str:
    """The workspace as one hash: the same content gives the same one, on every machine."""
    return digest_of(look(workspace, bytes_max=bytes_max))


def digest_of(seen: Mapping[str, Seen]) -> str:
    return sha256_hex([msgspec.to_builtins(each.entry) for each in seen.values()])


def changes(before: Mapping[str, Seen], after: Mapping[str, Seen]) -> Changes:
    gone: dict[str, bool] = {}  # and whether it has to be said: what lies in a folder goes with it
    for path, was in before.items():
        if path not in after or after[path].entry.kind != was.entry.kind:
            gone[path] = path.rpartition("/")[0] not in gone
    new = {path: _same_bytes(before.get(path), now) for path, now in after.items() if before.get(path) != now}
    content = sum(after[path].entry.size - same for path, same in new.items())
    return Changes(tuple(path for path, is_said in gone.items() if is_said), new, content)


def _same_bytes(was: Seen | None, now: Seen) -> int:
    """How much of a file's beginning is as it was."""
    if was is None or was.entry.kind != "file" or was.is_executable != now.is_executable:
        return 0
    pairs = zip(was.beginnings, now.beginnings, strict=False)
    return _BLOCK_BYTES * sum(before == after for before, after in pairs)  # once they differ they never agree again


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


def pack(
    workspace: str, target: BinaryIO, *, bytes_max: int = BYTES_MAX, only: Mapping[str, int] | None = None
) -> None:
    """What is kept, as a tar archive: without owners, times and set-user-id bits. With `only`: of a `Changes.new`."""
    with tarfile.open(fileobj=target, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for found in _kept(workspace, bytes_max):
            if only is not None and found.path not in only:
                continue
            member = tarfile.TarInfo(found.path)
            mode = found.status.st_mode
            if stat.S_ISREG(mode):
                same = 0 if only is None else only[found.path]
                member.size = found.status.st_size - same
                member.pax_headers = {_FROM: str(same)} if same else {}
                member.mode = _EXECUTABLE if mode & stat.S_IXUSR else _PLAIN
                with _opened(found) as file:
                    file.seek(same)
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


def unpack(
    source: BinaryIO, folder: str, *, bytes_max: int = BYTES_MAX, gone: Sequence[str] = (), over: bool = False
) -> None:
    """Into an empty folder, or `over` another version, of which `gone` is removed first. An archive that would write
    anywhere else, or anything else, is refused at that member."""
    top = os.open(folder, _OPEN | os.O_DIRECTORY)
    count, written = 0, 0
    try:
        for path in gone:
            _remove(path, top)
        with tarfile.open(fileobj=source, mode="r:", errorlevel=2) as archive:
            for member in archive:
                count, written = count + 1, written + member.size
                if count > _ENTRIES_MAX or written > bytes_max:
                    raise UnsafeArtefact(member.name, "the archive holds too much")
                _unpack_one(archive, member, top, over)
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


def _seen(found: _Found) -> Seen:
    mode = found.status.st_mode
    if stat.S_ISDIR(mode):
        return Seen(Entry(found.path, "folder"))
    hashed = hashlib.sha256()
    if stat.S_ISLNK(mode):
        hashed.update(os.fsencode(os.readlink(found.name, dir_fd=found.folder)))
        return Seen(Entry(found.path, "link", digest=hashed.hexdigest()))
    beginnings = []
    with _opened(found) as file:
        while part := file.read(_CHUNK_BYTES):
            blocks = memoryview(part)
            for at in range(0, len(part), _BLOCK_BYTES):
                block = blocks[at : at + _BLOCK_BYTES]
                hashed.update(block)
                if len(block) == _BLOCK_BYTES:
                    beginnings.append(hashed.copy().digest()[:16])
    entry = Entry(found.path, "file", found.status.st_size, hashed.hexdigest())
    return Seen(entry, bool(mode & stat.S_IXUSR), tuple(beginnings))


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


def _unpack_one(archive: tarfile.TarFile, member: tarfile.TarInfo, top: int, over: bool) -> None:
    with _above(member.name.removesuffix("/"), top) as (folder, name):
        same = int(member.pax_headers.get(_FROM, "0"))
        if over and same > 0 and member.isreg():
            _go_on(archive, member, folder, name, same)
            return
        if over:
            _make_room(member, folder, name)
        _make(archive, member, folder, name)


@contextmanager
def _above(path: str, top: int) -> Iterator[tuple[int, str]]:
    """The open folder that a path lies in, reached without links, and its name there."""
    parts = path.split("/")
    if path.startswith("/") or "\0" in path or any(part in ("", ".", "..") for part in parts):
        raise UnsafeArtefact(path, "its name leaves the workspace")
    if len(parts) > _DEPTH_MAX + 1:
        raise UnsafeArtefact(path, f"it lies deeper than {_DEPTH_MAX} folders")
    folder = os.dup(top)
    try:
        for part in parts[:-1]:
            below = os.open(part, _OPEN | os.O_DIRECTORY, dir_fd=folder)
            os.close(folder)
            folder = below
        yield folder, parts[-1]
    except OSError as error:
        raise UnsafeArtefact(path, error.strerror or "it cannot be written") from None
    finally:
        os.close(folder)


def _remove(path: str, top: int) -> None:
    with _above(path, top) as (folder, name):
        if stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            shutil.rmtree(name, dir_fd=folder)
        else:
            os.unlink(name, dir_fd=folder)


def _make_room(member: tarfile.TarInfo, folder: int, name: str) -> None:
    """A file or a link takes the place of the one before it. What was of another kind is gone already."""
    if not member.isdir():
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=folder)


def _go_on(archive: tarfile.TarFile, member: tarfile.TarInfo, folder: int, name: str, same: int) -> None:
    """A file keeps its beginning, and what follows is new."""
    with os.fdopen(os.open(name, _CONTINUE, dir_fd=folder), "r+b") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_size < same:
            raise UnsafeArtefact(member.name, "what it goes on from is not there")
        file.truncate(same)
        file.seek(same)
        _copy(archive, member, file)


def _make(archive: tarfile.TarFile, member: tarfile.TarInfo, folder: int, name: str) -> None:
    if member.isdir():
        os.mkdir(name, _EXECUTABLE, dir_fd=folder)
    elif member.issym():
        os.symlink(member.linkname, name, dir_fd=folder)
    elif member.isreg() and not member.issparse():
        mode = _EXECUTABLE if member.mode & stat.S_IXUSR else _PLAIN
        with os.fdopen(os.open(name, _MAKE, mode, dir_fd=folder), "wb") as file:
            _copy(archive, member, file)
    else:
        raise UnsafeArtefact(member.name, "it is neither a file nor a folder nor a link")


def _copy(archive: tarfile.TarFile, member: tarfile.TarInfo, file: BinaryIO) -> None:
    content = archive.extractfile(member)
    assert content is not None
    while part := content.read(_CHUNK_BYTES):
        file.write(part)
