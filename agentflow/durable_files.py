"""Small files that must be there whole, or not at all, after a power cut: keys, and whatever else is made only once.

Readable by their owner alone. Blocks while the disk writes, so it is for starting up and for commands, not for serving.
"""

import os
import secrets
from contextlib import suppress
from pathlib import Path


def replace_private(file: Path, content: bytes) -> None:
    """Put `content` in the place of whatever the file held."""
    beside = _written_beside(file, content)
    beside.replace(file)
    flush_folder(file.parent)


def make_private(file: Path, content: bytes) -> None:
    """Make the file unless it is there. Of several who try at once, whoever is first."""
    beside = _written_beside(file, content)
    with suppress(FileExistsError):
        os.link(beside, file)
    beside.unlink()
    flush_folder(file.parent)


def flush_folder(folder: Path) -> None:
    """What a folder lists is not on the disk because the files are."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _written_beside(file: Path, content: bytes) -> Path:
    if not file.parent.exists():
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        flush_folder(file.parent.parent)
    beside = file.with_name(f"{file.name}.{secrets.token_hex(4)}")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as writing:
        writing.write(content)
        writing.flush()
        os.fsync(descriptor)
    return beside
