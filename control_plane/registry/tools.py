"""The tools of each tenant: registered once, immutable, compatible within a major version; and the built-in ones.

Asked by the API (push, find), by the workflow registry (are the tools a workflow names known, and what is it pinned
to?) and by workers (the definition behind a digest). Storing is `control_plane.storage`'s, behind `ToolStore`.
"""

import re
from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from agentflow.clock import Clock
from agentflow.errors import Conflict, Invalid, NotFound, Problem
from agentflow.ids import TenantId
from agentflow.limits import NEWEST_VERSION_KNOWN_S, PROGRAMS_CACHED_MAX
from agentflow.tools.compatibility import breaking_changes
from agentflow.tools.definition import RunBuiltin
from agentflow.tools.load import InvalidTool, LoadedTool, builtin_tools, load_tool
from agentflow.workflow.source_map import Document, path_text
from agentflow.workflow.suggest import did_you_mean
from control_plane.audit.notes import concerning
from control_plane.registry.recent import Recent
from control_plane.registry.schemas import schema_faults
from control_plane.registry.versions import precedence

_PERMISSION = re.compile(r"\*|[a-z0-9]+\.(\*|[a-z0-9_-]+)(:\S+)?")
_VERSIONS_SHOWN = 5


class RegisteredTool(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    version: str
    digest: str
    definition: dict[str, Any]
    created_at_ms: int
    builtin: bool = False

    @property
    def spec(self) -> dict[str, Any]:
        spec: dict[str, Any] = self.definition["spec"]
        return spec

    @property
    def description(self) -> str:
        return str(self.definition["metadata"].get("description", ""))


class ToolStore(Protocol):
    async def add(self, tenant: TenantId, tool: RegisteredTool) -> RegisteredTool:
        """Keep it, unless its name and version are taken; answers with what is stored under them now."""
        ...

    async def versions(self, tenant: TenantId, name: str) -> Sequence[RegisteredTool]:
        """All of one tool, in no order."""
        ...

    async def list(self, tenant: TenantId) -> Sequence[RegisteredTool]:
        """All of a tenant: as many as people wrote, which is not many."""
        ...

    async def by_digest(self, tenant: TenantId, digest: str) -> RegisteredTool | None: ...


class ToolNotFound(NotFound):
    code = "AF1431"

    def __init__(self, reference: str, *, hint: str) -> None:
        super().__init__(f"There is no tool `{reference}`.", hint=hint)


class ToolVersionTaken(Conflict):
    code = "AF1432"

    def __init__(self, name: str, version: str) -> None:
        super().__init__(
            f"Version {version} of the tool `{name}` is registered already, with another content.",
            hint="Raise `metadata.version`: a registered version never changes, because executions are pinned to it.",
        )


class ToolBreaksCallers(Invalid):
    code = "AF1433"

    def __init__(self, name: str, version: str, other: str, changes: Sequence[str]) -> None:
        super().__init__(
            f"Version {version} of the tool `{name}` would break callers of {other}.",
            hint="Keep what callers send and read, or raise the major version (the minor one while it is 0).",
            problems=[Problem(change) for change in changes],
        )


class ToolIsBuiltIn(Conflict):
    code = "AF1434"

    def __init__(self, name: str) -> None:
        super().__init__(
            f"The tool `{name}` is built in.", hint="Choose another name, such as one that starts with your team's."
        )


class ToolRegistry:
    def __init__(self, store: ToolStore, *, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        # By tenant and digest: right for ever. By tenant and reference: believed for a moment, or until a push here.
        self._definitions: Recent[RegisteredTool] = Recent(PROGRAMS_CACHED_MAX)
        self._newest: Recent[tuple[float, RegisteredTool | None]] = Recent(PROGRAMS_CACHED_MAX)

    async def push(self, tenant: TenantId, text: str) -> tuple[RegisteredTool, bool]:
        """The tool, and whether it is new. Pushing the same content again changes nothing."""
        loaded = load_tool(text)
        problems = _problems(loaded)
        if problems:
            raise InvalidTool(problems)
        name, version = loaded.definition.name, loaded.definition.version
        if name in builtin_tools():
            raise ToolIsBuiltIn(name)
        candidate = RegisteredTool(
            name=name, version=version, digest=loaded.digest, definition=loaded.data,
            created_at_ms=self._clock.now_ms(),
        )  # fmt: skip
        known = await self._store.versions(tenant, name)
        if not any(tool.version == version for tool in known):
            _check_compatible(candidate, known)
        concerning("tool", f"{name}@{version}", digest=candidate.digest)
        stored = await self._store.add(tenant, candidate)
        if stored.digest != candidate.digest:
            raise ToolVersionTaken(name, version)
        self._newest = Recent(PROGRAMS_CACHED_MAX)
        return stored, all(tool.version != version for tool in known)

    async def find(self, tenant: TenantId, reference: str) -> RegisteredTool:
        """By `name` (its newest release), `name@1.2.0`, or `name@1` and `name@1.2` (the newest of those)."""
        found = await self._found(tenant, reference)
        if found is None:
            raise ToolNotFound(reference, hint=await self._suggestion(tenant, reference.partition("@")[0]))
        return found

    async def list(self, tenant: TenantId, *, name: str | None = None) -> list[RegisteredTool]:
        """Every version, by name and then newest first; the built-in ones among them."""
        tools = [*await self._store.list(tenant), *(_as_registered(tool) for tool in builtin_tools().values())]
        wanted = [tool for tool in tools if name is None or tool.name == name]
        wanted.sort(key=lambda tool: precedence(tool.version), reverse=True)
        return sorted(wanted, key=lambda tool: tool.name)

    async def definition(self, tenant: TenantId, digest: str) -> dict[str, Any] | None:
        key = f"{tenant}/{digest}"
        known = self._definitions.get(key) or await self._store.by_digest(tenant, digest)
        return self._definitions.keep(key, known).definition if known is not None else None

    async def pins(self, tenant: TenantId, references: Sequence[str]) -> dict[str, str]:
        """The digest of each registered tool, as of now. What is not registered is the worker's to know."""
        found = {reference: await self._found(tenant, reference) for reference in sorted(set(references))}
        return {reference: tool.digest for reference, tool in found.items() if tool is not None and not tool.builtin}

    async def known(self, tenant: TenantId, references: Sequence[str]) -> dict[str, RegisteredTool]:
        found = {reference: await self._found(tenant, reference) for reference in sorted(set(references))}
        return {reference: tool for reference, tool in found.items() if tool is not None}

    async def _found(self, tenant: TenantId, reference: str) -> RegisteredTool | None:
        key, now_s = f"{tenant}/{reference}", self._clock.monotonic_s()
        known = self._newest.get(key)
        if known is not None and now_s - known[0] < NEWEST_VERSION_KNOWN_S:
            return known[1]
        found = await self._looked_up(tenant, reference)
        return self._newest.keep(key, (now_s, found))[1]

    async def _looked_up(self, tenant: TenantId, reference: str) -> RegisteredTool | None:
        name, _, version = reference.partition("@")
        if name in builtin_tools():
            known: Sequence[RegisteredTool] = [_as_registered(builtin_tools()[name])]
        else:
            known = await self._store.versions(tenant, name)
        fitting = [tool for tool in known if _fits(tool.version, version)]
        return max(fitting, key=lambda tool: precedence(tool.version), default=None)

    async def _suggestion(self, tenant: TenantId, name: str) -> str:
        known = await self.list(tenant)
        versions = [tool.version for tool in known if tool.name == name][:_VERSIONS_SHOWN]
        if versions:
            return f"Versions of `{name}`: {', '.join(versions)}."
        return did_you_mean(name, sorted({tool.name for tool in known}), kind="tools")


def _fits(version: str, wanted: str) -> bool:
    """`1` and `1.2` stand for every release that begins so; anything longer for itself."""
    if not wanted:
        return True
    return version == wanted or ("-" not in version and version.startswith(f"{wanted}.") and wanted.count(".") < 2)


def _as_registered(tool: LoadedTool) -> RegisteredTool:
    return RegisteredTool(
        name=tool.definition.name, version=tool.definition.version, digest=tool.digest, definition=tool.data,
        created_at_ms=0, builtin=True,
    )  # fmt: skip


def _problems(loaded: LoadedTool) -> list[Problem]:
    """What the shape alone does not show: schemas that cannot be used, permissions that are none."""
    document = loaded.document
    assert document is not None
    found = []
    for key in ("input", "output"):
        for path, message in schema_faults(loaded.data["spec"].get(key, {})):
            found.append(_placed(document, ("spec", key, *path), f"The schema cannot be used: {message}."))
    for index, permission in enumerate(loaded.definition.spec.permissions):
        if not _PERMISSION.fullmatch(permission):
            message = f"`{permission}` is not a permission."
            found.append(_placed(document, ("spec", "permissions", index), message))
    if isinstance(loaded.definition.spec.run, RunBuiltin):
        found.append(_placed(document, ("spec", "run"), "Only AgentFlow's own tools are of type `builtin`."))
    return found


def _placed(document: Document, path: tuple[str | int, ...], message: str) -> Problem:
    return Problem(message, "", *document.position(path), path_text(path))


def _check_compatible(tool: RegisteredTool, known: Sequence[RegisteredTool]) -> None:
    """Against its neighbours on the same line: callers move up from the one below, and on to the one above."""
    line = [other for other in known if _line(other.version) == _line(tool.version)]
    here = precedence(tool.version)
    below = max((other for other in line if precedence(other.version) < here),
                key=lambda other: precedence(other.version), default=None)  # fmt: skip
    above = min((other for other in line if precedence(other.version) > here),
                key=lambda other: precedence(other.version), default=None)  # fmt: skip
    for old, new in ((below, tool), (tool, above)):
        if old is not None and new is not None and (changes := breaking_changes(old.spec, new.spec)):
            raise ToolBreaksCallers(tool.name, tool.version, (old if new is tool else new).version, changes)


def _line(version: str) -> tuple[str, ...]:
    """What a caller may rely on: the major version, and while that is 0 the minor one."""
    major, minor, _ = version.split(".", 2)
    return (major,) if major != "0" else (major, minor)
