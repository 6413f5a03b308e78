"""What a sandbox with a file system of its own finds there, and where. Used by `process`, `gvisor` and `docker`.

Everything is read-only but `/sandbox`, `/tmp`, the workspace and what `fs.write:` grants; what is not listed does not
exist. Granted paths keep their names, so that a tool written on a laptop finds them in a sandbox too.
"""

import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from sandbox.policy import HOME, ExecProfile
from sandbox.tool_call import ToolCall

WORK = HOME  # where a call starts
TEMPORARY = ("/tmp", "/dev/shm")  # noqa: S108 - as much the sandbox's own
WORKSPACE = "/workspace"
DOOR = "/run/agentflow"  # where the egress socket appears
EGRESS = f"{DOOR}/egress.sock"
CERTIFICATES = f"{DOOR}/certificates.pem"
CHILD = str(Path(__file__).with_name("child.py"))
CHILD_INSIDE = "/run/agentflow.py"
# What lets programs that know nothing of the socket find it: a resolver and two ports on the sandbox's own loopback.
OUTWARD = str(Path(__file__).parents[1] / "egress" / "inside.py")
OUTWARD_INSIDE = "/run/agentflow-egress.py"
RESOLVER = "resolv.conf"

_SYSTEM = ("/usr", "/lib", "/lib64", "/bin", "/sbin")
_SYSTEM_FILES = (
    *("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/localtime", "/etc/mime.types"),
    *("/etc/nsswitch.conf", "/etc/ssl", "/etc/pki", "/etc/ca-certificates", "/etc/alternatives"),
)

# How OpenSSL, Python's requests, curl, Node and git are told whom to believe.
_BELIEVED = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "GIT_SSL_CAINFO")


class Mount(msgspec.Struct, frozen=True):
    source: str
    target: str
    writable: bool = False


class Link(msgspec.Struct, frozen=True):
    """A symbolic link of the host's root (`/lib` → `usr/lib`) that must exist inside as well."""

    target: str
    path: str


class Layout(msgspec.Struct, frozen=True):
    mounts: tuple[Mount, ...]
    links: tuple[Link, ...] = ()


def interpreter_layout(call: ToolCall, profile: ExecProfile, *, door: str | None) -> Layout:
    """The host's interpreter and libraries, what was granted, and the call's own places."""
    mounts, links = [], []
    for place in _SYSTEM:
        if Path(place).is_symlink():
            links.append(Link(os.readlink(place), place))  # noqa: PTH115 - the text, not what it leads to
        elif Path(place).exists():
            mounts.append(Mount(place, place))
    mounts += [Mount(place, place) for place in _SYSTEM_FILES if Path(place).exists()]
    mounts += [Mount(place, place) for place in _interpreter() if not place.startswith("/usr/")]
    mounts.append(Mount(CHILD, CHILD_INSIDE))
    mounts += granted(call, profile, door=door)
    return Layout(tuple(mounts), tuple(links))


def granted(call: ToolCall, profile: ExecProfile, *, door: str | None) -> list[Mount]:
    """What this call may see beyond the system. A path that does not exist needs no mount."""
    mounts = [Mount(path, path) for path in (*call.path, *profile.readable) if Path(path).exists()]
    mounts += [Mount(path, path, writable=True) for path in profile.writable if Path(path).exists()]
    if call.workspace is not None:
        mounts.append(Mount(call.workspace, WORKSPACE, writable=True))
    if door is not None:
        mounts.append(Mount(door, DOOR))
        mounts.append(Mount(OUTWARD, OUTWARD_INSIDE))
        mounts.append(Mount(f"{door}/{RESOLVER}", "/etc/resolv.conf"))
    return mounts


def given(call: ToolCall, profile: ExecProfile) -> dict[str, str]:
    """What only this call's environment holds: where its way out and its folder are, and whom to believe."""
    found = {}
    if call.workspace is not None:
        found["AGENTFLOW_WORKSPACE"] = WORKSPACE
    if profile.egress and call.egress is not None:
        found["AGENTFLOW_EGRESS"] = EGRESS
        if call.trusted is not None:
            found.update(dict.fromkeys(_BELIEVED, CERTIFICATES))
    return found


def folders_above(mounts: Iterable[Mount]) -> list[str]:
    """The folders that must exist for these mounts, outermost first."""
    above = {str(parent) for mount in mounts for parent in Path(mount.target).parents}
    return sorted(above - {"/"})


def open_to_others(path: str) -> bool:
    """Whether any user may read what lies there, once it is mounted: its parents do not count any more."""
    place = Path(path)
    needed = 0o005 if place.is_dir() else 0o004
    return not place.exists() or (place.stat().st_mode & needed) == needed


def _interpreter() -> Iterator[str]:
    """The interpreter's folders, by every name they go by: a virtual environment points at its base by symlinks."""
    seen = set()
    for prefix in (sys.base_prefix, sys.prefix):
        for place in (prefix, str(Path(prefix).resolve())):
            if place not in seen:
                seen.add(place)
                yield place
