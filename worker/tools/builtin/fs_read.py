"""`fs.read`: a file of the workspace, or the names below a folder of it."""

import base64
import os
import stat
from typing import Any

from workspace_files import opened_folder, parts_of  # type: ignore[import-not-found]

_BYTES_MAX = 300_000  # base64 of it must fit into a step's output
_NAMES_MAX = 5_000


def run(input: dict[str, Any]) -> dict[str, Any]:
    parts = parts_of(input["path"])
    if not parts:
        return {"path": ".", "files": _names([])}
    folder = opened_folder(parts[:-1])
    try:
        file = os.open(parts[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    finally:
        os.close(folder)
    with os.fdopen(file, "rb") if stat.S_ISREG(os.fstat(file).st_mode) else _closing(file) as opened:
        if opened is None:
            return {"path": "/".join(parts), "files": _names(parts)}
        content = opened.read(_BYTES_MAX + 1)
    if len(content) > _BYTES_MAX:
        raise ValueError(f"{input['path']} has more than {_BYTES_MAX} bytes.")
    as_text = base64.b64encode(content).decode() if input.get("encoding") == "base64" else content.decode()
    return {"path": "/".join(parts), "content": as_text, "bytes": len(content)}


class _closing:  # noqa: N801 - reads as the function it is
    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)


def _names(parts: list[str]) -> list[str]:
    """Every file below, as paths from the workspace's top; links are not followed, and not listed."""
    found: list[str] = []
    folder = opened_folder(parts)
    try:
        for above, _, files, _ in os.fwalk(".", dir_fd=folder, follow_symlinks=False):
            prefix = "/".join([*parts, *[part for part in above.split("/") if part != "."]])
            found += [f"{prefix}/{name}" if prefix else name for name in files]
            if len(found) > _NAMES_MAX:
                raise ValueError(f"There are more than {_NAMES_MAX} files.")
    finally:
        os.close(folder)
    return sorted(found)
