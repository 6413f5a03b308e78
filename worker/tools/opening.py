"""The tools of one worker, put together: the agents file's, the built-in ones, and what both stand on.

Called by `worker.wiring`, which hands in every adapter; it reads no settings itself.
"""

import ipaddress
import ssl
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, assert_never

from agentflow.clock import Clock
from agentflow.errors import Rejected
from agentflow.tools.load import LoadedTool, builtin_tools, tool_from_data
from agentflow.workflow.durations import format_duration
from sandbox.egress.door import EgressProxy
from sandbox.egress.policy import Reach
from sandbox.egress.terminator import Terminator
from sandbox.egress.upstream import Upstream
from sandbox.policy import OPERATOR, compile_profile
from sandbox.runner import Sandboxes
from worker.agents_file import BuiltinToolSpec, HostedToolSpec, RegisteredTools, ToolSpec
from worker.tools.agent import ToolsAgent
from worker.tools.authorities import Authorities, registered_tools
from worker.tools.claiming import CallClaims
from worker.tools.definitions import Definitions
from worker.tools.hosting import HostedTool, host
from worker.tools.records import ToolRecords
from worker.tools.workspaces import Workspaces

# Hosted without being asked for: they reach nothing that was not granted. Code of other people, and folders, are
# named in the agents file or not there.
_ALWAYS = ("fs.read", "fs.write", "http.request", "json.transform")
_LOCAL_VERSION = "0.0.0"


class UnknownBuiltin(Rejected):
    code = "AF1438"

    def __init__(self, name: str) -> None:
        super().__init__(
            f"There is no built-in tool {name!r}.", hint=f"The built-in ones are {', '.join(builtin_tools())}."
        )


def open_tools(
    specs: Mapping[str, HostedToolSpec],
    *,
    registered: RegisteredTools | None,
    folder: str,
    sandboxes: Sandboxes,
    authorities: Authorities,
    egress: EgressProxy,
    records: ToolRecords,
    definitions: Definitions,
    claims: CallClaims,
    workspaces: Workspaces,
    clock: Clock,
) -> ToolsAgent:
    tools = {name: host(builtin_tools()[name], folder=folder) for name in _ALWAYS}
    tools |= {name: _hosted(name, spec, folder) for name, spec in specs.items()}
    return ToolsAgent(
        tools,
        sandboxes=sandboxes,
        authorities=authorities,
        egress=egress,
        records=records,
        definitions=definitions,
        claims=claims,
        registered=registered_tools(registered),
        folder=folder,
        workspaces=workspaces,
        clock=clock,
    )


def open_egress(
    *, private: str, own: Sequence[tuple[str, int]] = (), secrets: Path | None, records: ToolRecords
) -> EgressProxy:
    """`private` are ranges, separated by commas (see `settings.egress_private`); `own` the servers never to reach."""
    reach = Reach(private=tuple(ipaddress.ip_network(text.strip()) for text in private.split(",") if text.strip()))
    return EgressProxy(
        upstream=Upstream(reach=reach, own=own, tls=ssl.create_default_context()),
        record=records.note,
        secret_of=_secrets_in(secrets),
        now_ms=records.now_ms,
        terminator=Terminator(),
    )


def _secrets_in(folder: Path | None) -> Callable[[str], str | None]:
    def secret_of(name: str) -> str | None:
        """Read anew each time: a rotated secret is the next request's."""
        if folder is None or "/" in name or name.startswith("."):
            return None
        try:
            return (folder / name).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError):
            return None

    return secret_of


def _hosted(name: str, spec: HostedToolSpec, folder: str) -> HostedTool:
    """Refused now, and not at its first call, where it names what no sandbox can grant."""
    tool = _hosted_as(name, spec, folder)
    compile_profile(tool.needs, backend="process", isolation="full", folder=folder, authorities=(OPERATOR,))
    return tool


def _hosted_as(name: str, spec: HostedToolSpec, folder: str) -> HostedTool:
    match spec:
        case BuiltinToolSpec():
            known = builtin_tools().get(name)
            if known is None:
                raise UnknownBuiltin(name)
            return host(
                known,
                folder=folder,
                permissions=spec.permissions,
                credentials=spec.credentials,
                sandbox=spec.sandbox,
            )
        case ToolSpec():
            return host(_local(name, spec), folder=folder, sandbox=spec.sandbox)
        case _:
            assert_never(spec)


def _local(name: str, spec: ToolSpec) -> LoadedTool:
    """A function of the agents file as a definition that says no more than the file does."""
    data: dict[str, Any] = {
        "apiVersion": "agentflow/v1",
        "kind": "Tool",
        "metadata": {"name": name, "version": _LOCAL_VERSION},
        "spec": {
            "run": {"type": "function", "call": spec.call, **({"reconcile": spec.reconcile} if spec.reconcile else {})},
            **({"effect": spec.effect} if spec.effect != "idempotent" else {}),
            "permissions": spec.permissions,
            "environment": spec.environment,
            "timeout": format_duration(spec.timeout),
            "memory_mb": spec.memory_mb,
        },
    }
    return tool_from_data(data)
