"""`fs.write`: a file into the workspace, whole at once or not at all; appending adds to what is there."""

import base64
import hashlib
import os
from typing import Any

from workspace_files import opened_folder, parts_of  # type: ignore[import-not-found]

_MODE = 0o644


def run(input: dict[str, Any], context: Any) -> dict[str, Any]:
    parts = parts_of(input["path"])
    if not parts:
        raise ValueError("A file needs a name.")
    content = base64.b64decode(input["content"]) if input.get("encoding") == "base64" else input["content"].encode()
    folder = opened_folder(parts[:-1], make=True)
    try:
        if input.get("append"):
            _write(folder, parts[-1], content, os.O_APPEND)
        else:
            # Under another name first: a reader sees the old file or the new one, and an attempt that died leaves none.
            draft = f".{parts[-1]}.{context.attempt}.draft"
            _write(folder, draft, content, os.O_TRUNC)
            os.replace(draft, parts[-1], src_dir_fd=folder, dst_dir_fd=folder)
    finally:
        os.close(folder)
    return {"path": "/".join(parts), "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def _write(folder: int, name: str, content: bytes, how: int) -> None:
    file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | how, _MODE, dir_fd=folder)
    with os.fdopen(file, "wb") as opened:
        opened.write(content)
        opened.flush()
        os.fsync(file)
