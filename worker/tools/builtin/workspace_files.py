"""Opening a path of the workspace from its top, folder by folder, without ever following a link out of it."""

import contextlib
import os


def workspace() -> str:
    folder = os.environ.get("AGENTFLOW_WORKSPACE")  # noqa: TID251 - how a sandbox tells a tool what it was given
    if folder is None:
        raise PermissionError("This tool has no workspace; add `fs.workspace` to its permissions.")
    return folder


def parts_of(path: str) -> list[str]:
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if path.startswith("/") or ".." in parts or "\0" in path:
        raise ValueError(f"{path!r} leaves the workspace; write a path relative to it.")
    return parts


def opened_folder(parts: list[str], *, make: bool = False) -> int:
    """A descriptor of the folder at `parts` below the workspace. The caller closes it."""
    folder = os.open(workspace(), os.O_RDONLY | os.O_DIRECTORY)
    for part in parts:
        try:
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, dir_fd=folder)
            below = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
        finally:
            os.close(folder)
        folder = below
    return folder
