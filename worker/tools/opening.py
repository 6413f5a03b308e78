"""The tools of one worker, put together: the agents file's, the built-in ones, and what both stand on.

Called by `worker.wiring`, which hands in every adapter; it reads no settings itself.
"""

import ipaddress
import ssl
from collections.abc import Callable, Mapping
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
from sandbox.policy import Grants
from sandbox.runner import Sandbox
from worker.agents_file import BuiltinToolSpec, HostedToolSpec, RegisteredTools, ToolSpec
from worker.tools.agent import ToolsAgent
from worker.tools.definitions import Definitions
from worker.tools.hosting import HostedTool, host
from worker.tools.records import ToolRecords

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
    sandbox: Sandbox,
    egress: EgressProxy,
    records: ToolRecords,
    definitions: Definitions,
    workspaces: Path,
    clock: Clock,
) -> ToolsAgent:
    tools = {name: host(builtin_tools()[name], sandbox=sandbox, folder=folder) for name in _ALWAYS}
    tools |= {name: _hosted(name, spec, sandbox, folder) for name, spec in specs.items()}
    allowed = registered or RegisteredTools()
    return ToolsAgent(
        tools,
        sandbox=sandbox,
        egress=egress,
        records=records,
        definitions=definitions,
        registered=Grants("the agents file's `registered_tools`", allow=tuple(allowed.allow), deny=tuple(allowed.deny)),
        folder=folder,
        workspaces=workspaces,
        clock=clock,
    )


def open_egress(*, private: str, own: str, secrets: Path | None, records: ToolRecords) -> EgressProxy:
    """`private` and `own` are ranges and addresses, separated by commas (see `settings.egress_private`)."""
    reach = Reach(
        private=tuple(ipaddress.ip_network(text.strip()) for text in private.split(",") if text.strip()),
        own=frozenset(ipaddress.ip_address(text) for text in own.split(",") if text),
    )
    return EgressProxy(
        upstream=Upstream(reach=reach, tls=ssl.create_default_context()),
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


def _hosted(name: str, spec: HostedToolSpec, sandbox: Sandbox, folder: str) -> HostedTool:
    match spec:
        case BuiltinToolSpec():
            known = builtin_tools().get(name)
            if known is None:
                raise UnknownBuiltin(name)
            return host(
                known, sandbox=sandbox, folder=folder, permissions=spec.permissions, credentials=spec.credentials
            )
        case ToolSpec():
            return host(_local(name, spec), sandbox=sandbox, folder=folder)
        case _:
            assert_never(spec)


def _local(name: str, spec: ToolSpec) -> LoadedTool:
    """A function of the agents file as a definition that says no more than the file does."""
    data: dict[str, Any] = {
        "apiVersion": "agentflow/v1",
        "kind": "Tool",
        "metadata": {"name": name, "version": _LOCAL_VERSION},
        "spec": {
            "run": {"type": "function", "call": spec.call},
            "permissions": spec.permissions,
            "environment": spec.environment,
            "timeout": format_duration(spec.timeout),
            "memory_mb": spec.memory_mb,
        },
    }
    return tool_from_data(data)
