"""What a tool may touch: its declared needs compiled to the one profile it runs under. Pure; denies by default.

Compiled once per tool by `worker.wiring`, enforced by a backend. Whatever is not written in a profile is refused.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Literal

import msgspec

from agentflow import limits
from agentflow.canonical import sha256_hex
from agentflow.errors import Rejected

Isolation = Literal["full", "reduced"]

MIB = 1024 * 1024
_WALL_S_DEFAULT = 30.0
_MEMORY_BYTES_DEFAULT = 256 * MIB  # address space: a bare interpreter takes about 20 MiB of it
_OPEN_FILES_MAX = 256
_FILE_BYTES_MAX = 64 * MIB
_PROCESSES_MAX = 64


class ToolNeeds(msgspec.Struct, frozen=True):
    """What a tool's owner declares. Paths in permissions are relative to the folder of the agents file."""

    name: str
    timeout_s: float = _WALL_S_DEFAULT
    memory_bytes: int = _MEMORY_BYTES_DEFAULT
    permissions: tuple[str, ...] = ()
    environment: Mapping[str, str] = {}


class ExecProfile(msgspec.Struct, frozen=True):
    """Everything a sandboxed call may have. The hash names it in audit records and outcomes."""

    backend: str
    isolation: Isolation
    wall_s: float
    cpu_s: int
    memory_bytes: int
    output_bytes: int
    file_bytes: int
    files_max: int
    processes_max: int
    permissions: tuple[str, ...] = ()
    environment: dict[str, str] = {}
    network: bool = False
    readable: tuple[str, ...] = ()
    writable: tuple[str, ...] = ()


class PermissionNotGrantable(Rejected):
    code = "AF1402"

    def __init__(self, tool: str, permissions: Sequence[str]) -> None:
        super().__init__(
            f"Tool {tool!r} asks for permissions that no sandbox here can grant: {', '.join(permissions)}.",
            hint="Use network, fs.tmp, fs.read:<path> or fs.write:<path>; anything else is denied, not ignored.",
        )


def compile_profile(tool: ToolNeeds, *, backend: str, isolation: Isolation, folder: str) -> ExecProfile:
    """The profile of a tool. `folder` is where relative paths start; it is absolute."""
    unknown = [permission for permission in tool.permissions if not _is_known(permission)]
    if unknown:
        raise PermissionNotGrantable(tool.name, unknown)
    return ExecProfile(
        backend=backend,
        isolation=isolation,
        wall_s=tool.timeout_s,
        cpu_s=math.ceil(tool.timeout_s) + 1,  # wall time is the bound people choose; this one stops what escapes it
        memory_bytes=tool.memory_bytes,
        output_bytes=limits.PAYLOAD_BYTES_MAX,
        file_bytes=_FILE_BYTES_MAX,
        files_max=_OPEN_FILES_MAX,
        processes_max=_PROCESSES_MAX,
        permissions=tuple(sorted(set(tool.permissions))),
        environment=dict(tool.environment),
        network="network" in tool.permissions,
        readable=_paths(tool.permissions, "fs.read:", folder),
        writable=_paths(tool.permissions, "fs.write:", folder),
    )


def profile_hash(profile: ExecProfile) -> str:
    return sha256_hex(msgspec.to_builtins(profile))


def _is_known(permission: str) -> bool:
    kind, _, path = permission.partition(":")
    return permission in ("network", "fs.tmp") or (kind in ("fs.read", "fs.write") and path != "")


def _paths(permissions: Sequence[str], kind: str, folder: str) -> tuple[str, ...]:
    wanted = {item.removeprefix(kind) for item in permissions if item.startswith(kind)}
    return tuple(sorted(str(PurePosixPath(folder) / path) for path in wanted))
