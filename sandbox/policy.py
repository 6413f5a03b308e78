"""What a tool may touch: agent role ∩ tool needs ∩ tenant policy, compiled to the one profile a call runs under. Pure.

Denies by default: whatever is not written in a profile is refused by every backend. A tool whose needs are not all
granted is not run with less; the refusal names each missing grant and who can give it. Bounds are different: the
lowest one wins, and the profile says which. `permissions` is the language of grants; backends enforce the result.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, TypeVar

import msgspec

from agentflow import limits
from agentflow.canonical import sha256_hex
from agentflow.errors import Invalid, Problem, Rejected
from sandbox.permissions import ANY, MalformedPermission, Permission, covers, meet, parse

Isolation = Literal["full", "reduced"]
Number = TypeVar("Number", int, float)

MIB = 1024 * 1024
_WALL_S_DEFAULT = 30.0
_MEMORY_BYTES_DEFAULT = 256 * MIB  # address space: a bare interpreter takes about 20 MiB of it
_CPUS_DEFAULT = 1.0
_OPEN_FILES_MAX = 256
_FILE_BYTES_MAX = 64 * MIB
_DISK_BYTES_DEFAULT = 128 * MIB
_INODES_MAX = 16_384
_PROCESSES_DEFAULT = 64

# How strong a fence each backend is. WASM has no system calls at all, and runs nothing but WASM.
HOME = "/sandbox"  # of a call: where it starts, its own, empty, gone with it; never the worker's
STRENGTH = {"process": 1, "docker": 2, "gvisor": 3, "wasm": 4}


class Bounds(msgspec.Struct, frozen=True):
    """Ceilings; None leaves a bound to whoever else sets it."""

    wall_s: float | None = None
    cpus: float | None = None
    memory_bytes: int | None = None
    processes_max: int | None = None
    disk_bytes: int | None = None
    output_bytes: int | None = None


class SecretRef(msgspec.Struct, frozen=True):
    """A secret by its name, and the domains it may be sent to: the egress proxy adds it, the sandbox never holds it."""

    name: str
    domains: tuple[str, ...] = ()


class ToolNeeds(msgspec.Struct, frozen=True):
    """What a tool's owner declares. Paths in permissions are relative to the folder of the agents file."""

    name: str
    timeout_s: float = _WALL_S_DEFAULT
    memory_bytes: int = _MEMORY_BYTES_DEFAULT
    permissions: tuple[str, ...] = ()
    environment: Mapping[str, str] = {}
    cpus: float = _CPUS_DEFAULT
    processes_max: int = _PROCESSES_DEFAULT
    disk_bytes: int = _DISK_BYTES_DEFAULT
    output_bytes: int = limits.VALUE_BYTES_MAX
    secrets: tuple[SecretRef, ...] = ()
    sandbox: str | None = None  # the weakest backend it accepts; None: whatever the deployment uses


class Grants(msgspec.Struct, frozen=True):
    """What one authority (a role, a tenant) allows and forbids. A denial beats every permission it touches."""

    authority: str
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    bounds: Bounds = Bounds()
    sandbox: str | None = None  # the weakest backend it accepts


# Who writes the agents file decides what its tools may do, until a role or a tenant's policy says less.
OPERATOR = Grants("the operator of this worker", allow=(ANY,))


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
    network: tuple[str, ...] = ()  # domain patterns the egress proxy lets through; inside there is never a network
    readable: tuple[str, ...] = ()
    writable: tuple[str, ...] = ()
    cpus: float = _CPUS_DEFAULT
    disk_bytes: int = _DISK_BYTES_DEFAULT
    inodes_max: int = _INODES_MAX
    secrets: tuple[SecretRef, ...] = ()

    @property
    def egress(self) -> bool:
        """Whether a call gets the socket of the egress proxy."""
        return bool(self.network)


class PermissionNotGrantable(Rejected):
    code = "AF1402"

    def __init__(self, owner: str, faults: Sequence[str]) -> None:
        super().__init__(
            f"{owner} names permissions that no sandbox can grant: {'; '.join(faults)}.",
            hint="Write network.http:<domain>, fs.read:<path>, fs.write:<path>, fs.tmp, db.read, k8s.<verb>, "
            "wasi.stdio or secret.use:<name>; anything else is denied, not ignored.",
        )


class Denial(msgspec.Struct, frozen=True):
    """One need that was not granted: who withholds it, and why."""

    need: str
    authority: str
    because: str  # the denial that forbids it; empty: it was never allowed

    def problem(self) -> Problem:
        if self.because:
            return Problem(
                f"`{self.need}` is forbidden by {self.authority}: `{self.because}`.",
                f"Ask for less than that, or have {self.authority} drop this denial.",
            )
        return Problem(
            f"`{self.need}` is not granted by {self.authority}.", f"Have `{self.need}` added to its `allow`."
        )


class PermissionDenied(Invalid):
    code = "AF1410"

    def __init__(self, tool: str, denials: Sequence[Denial]) -> None:
        super().__init__(
            f"Tool {tool!r} may not run: it needs what it was not granted.",
            hint="Grant what is named above, or take it out of the tool's permissions.",
            problems=[denial.problem() for denial in denials],
        )
        self.denials = tuple(denials)


def compile_profile(
    tool: ToolNeeds,
    *,
    backend: str,
    isolation: Isolation,
    folder: str,
    authorities: Sequence[Grants] = (OPERATOR,),
) -> ExecProfile:
    """The profile of a tool, as far as all authorities agree. `folder`, absolute, is where relative paths start."""
    needs = _parsed(f"Tool {tool.name!r}", tool.permissions, folder)
    needs += [Permission("secret", "use", secret.name) for secret in tool.secrets]
    denials = [denial for need in needs for grants in authorities for denial in _denials(need, grants)]
    if denials:
        raise PermissionDenied(tool.name, denials)
    bounds = [grants.bounds for grants in authorities]
    wall_s = _lowest(tool.timeout_s, (bound.wall_s for bound in bounds))
    return ExecProfile(
        backend=backend,
        isolation=isolation,
        wall_s=wall_s,
        cpu_s=math.ceil(wall_s) + 1,  # wall time is the bound people choose; this one stops what escapes it
        memory_bytes=_lowest(tool.memory_bytes, (bound.memory_bytes for bound in bounds)),
        output_bytes=_lowest(tool.output_bytes, (bound.output_bytes for bound in bounds)),
        file_bytes=_FILE_BYTES_MAX,
        files_max=_OPEN_FILES_MAX,
        processes_max=_lowest(tool.processes_max, (bound.processes_max for bound in bounds)),
        permissions=tuple(sorted({str(need) for need in needs})),
        environment=_home(backend) | dict(tool.environment),
        network=_scopes(needs, "network", "http"),
        readable=_scopes(needs, "fs", "read"),
        writable=_scopes(needs, "fs", "write"),
        cpus=_lowest(tool.cpus, (bound.cpus for bound in bounds)),
        disk_bytes=_lowest(tool.disk_bytes, (bound.disk_bytes for bound in bounds)),
        secrets=tuple(sorted(tool.secrets, key=lambda secret: secret.name)),
    )


def _home(backend: str) -> dict[str, str]:
    """Many libraries look for their settings at home when they are imported. A module has no files, and so no home."""
    return {} if backend == "wasm" else {"HOME": HOME}


def profile_hash(profile: ExecProfile) -> str:
    return sha256_hex(msgspec.to_builtins(profile))


def required_backend(deployed: str, *, tool: ToolNeeds, authorities: Sequence[Grants] = ()) -> str:
    """The backend a call must have: the deployment's, or the strongest that the tool or an authority insists on."""
    return strongest(deployed, tool.sandbox, *(grants.sandbox for grants in authorities)) or deployed


def strongest(*wanted: str | None) -> str | None:
    """Of backends that are named, the one that satisfies all; one nobody knows wins, and is then refused by name."""
    named = [name for name in wanted if name is not None]
    return max(named, key=lambda name: STRENGTH.get(name, len(STRENGTH) + 1), default=None)


def check_grants(grants: Grants) -> Grants:
    """The same, once every line of it is known to be a permission: for whoever reads policies before any call."""
    _parsed(f"The policy of {grants.authority}", (*grants.allow, *grants.deny), "/")
    return grants


def refused_profile(backend: str) -> ExecProfile:
    """What a call that was refused had: nothing. It names the refusal in records as any profile names its call."""
    return ExecProfile(backend, "full", 0.0, 0, 0, 0, 0, 0, 0, cpus=0.0, disk_bytes=0, inodes_max=0)


def _denials(need: Permission, grants: Grants) -> list[Denial]:
    for forbidden in _parsed(f"The policy of {grants.authority}", grants.deny, "/"):
        if meet(forbidden, need) is not None:
            return [Denial(str(need), grants.authority, str(forbidden))]
    if any(covers(granted, need) for granted in _allowed(grants)):
        return []
    return [Denial(str(need), grants.authority, "")]


def _allowed(grants: Grants) -> list[Permission]:
    return _parsed(f"The policy of {grants.authority}", grants.allow, "/")


def _parsed(owner: str, texts: Iterable[str], folder: str) -> list[Permission]:
    found, faults = [], []
    for text in texts:
        try:
            found.append(parse(text, folder=folder))
        except MalformedPermission as fault:
            faults.append(str(fault))
    if faults:
        raise PermissionNotGrantable(owner, faults)
    return found


def _scopes(needs: Iterable[Permission], family: str, action: str) -> tuple[str, ...]:
    wanted = {need.scope for need in needs if need.family == family and need.action in (action, ANY)}
    return tuple(sorted("/" if family == "fs" and scope == ANY else scope for scope in wanted))


def _lowest(wanted: Number, ceilings: Iterable[Number | None]) -> Number:
    lowest = wanted
    for ceiling in ceilings:
        if ceiling is not None and ceiling < lowest:
            lowest = ceiling
    return lowest
