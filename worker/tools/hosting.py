"""From a definition to a tool that can be called, and from there to the permit one call runs under.

Called by `agent` for pinned definitions and by `opening` for those of the agents file. Compiling a profile is
`sandbox.policy`'s work; this adds what a definition implies (a URL's code, a secret's host, the backend that its kind
of program needs).
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, assert_never

import msgspec

from agentflow.errors import Rejected
from agentflow.tools.definition import (
    CredentialUse,
    RunBuiltin,
    RunCommand,
    RunContainer,
    RunFunction,
    RunHttp,
    RunWasm,
)
from agentflow.tools.load import LoadedTool
from sandbox.egress.allowance import Credential
from sandbox.egress.policy import Grant, Refused, parse_grant, parse_host
from sandbox.policy import (
    MIB,
    OPERATOR,
    ExecProfile,
    Grants,
    SecretRef,
    ToolNeeds,
    compile_profile,
    profile_hash,
    required_backend,
    strongest,
)
from sandbox.runner import Sandbox, Sandboxes
from sandbox.tool_call import Command, Container, WasmModule
from worker.tools import schemas

_BUILTIN = str(Path(__file__).parent / "builtin")
_WORKSPACE = "fs.workspace"


class UnusableGrant(Rejected):
    code = "AF1437"

    def __init__(self, tool: str, grant: str, reason: str) -> None:
        super().__init__(
            f"Tool {tool!r} names the host {grant!r}: {reason}",
            hint="Write a host as api.example.com, *.example.com or api.example.com:8443.",
        )


class HostedTool(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    version: str
    digest: str
    call: str | Command | Container | WasmModule
    path: tuple[str, ...]
    needs: ToolNeeds
    folder: str  # where relative paths of its needs start
    effect: str
    reconcile: str | None = None  # a function that can look whether an earlier call was made
    operator: Grants = OPERATOR  # what this worker allows it, before any role or tenant is asked
    is_builtin: bool = False
    credentials: tuple[Credential, ...] = ()
    input: Any = None  # compiled schemas, None where they say nothing
    output: Any = None
    wrapped: dict[str, Any] | None = None  # an HTTP tool's address: the code that calls it gets the input inside
    dollars_per_call: float = 0.0
    dollars_per_second: float = 0.0

    def given(self, input: Any) -> Any:
        return input if self.wrapped is None else {**self.wrapped, "input": input}


class Permit(msgspec.Struct, frozen=True):
    """What a tool may have for one set of authorities, and the sandbox that holds it to that."""

    profile: ExecProfile
    hash: str
    sandbox: Sandbox
    grants: tuple[Grant, ...] = ()

    @property
    def has_workspace(self) -> bool:
        return _WORKSPACE in self.profile.permissions


def host(
    tool: LoadedTool,
    *,
    folder: str,
    permissions: Sequence[str] = (),
    credentials: Sequence[CredentialUse] = (),
    sandbox: str | None = None,
    operator: Grants = OPERATOR,
) -> HostedTool:
    """`permissions`, `credentials` and `sandbox` are what the operator adds where the tool is hosted."""
    name, spec = tool.definition.name, tool.definition.spec
    used = (*spec.credentials, *credentials)
    call, path, wrapped = _running(tool, folder)
    needs = ToolNeeds(
        name=name,
        timeout_s=spec.timeout / 1000,
        memory_bytes=spec.memory_mb * MIB,
        permissions=tuple(dict.fromkeys((*spec.permissions, *permissions))),
        environment=spec.environment,
        secrets=tuple(dict.fromkeys(SecretRef(use.secret, (use.host,)) for use in used)),
        sandbox=strongest(spec.sandbox, sandbox, _implied(call)),
    )
    return HostedTool(
        name=name,
        version=tool.definition.version,
        digest=tool.digest,
        call=call,
        path=path,
        needs=needs,
        folder=folder,
        effect=spec.effect,
        reconcile=spec.run.reconcile if isinstance(spec.run, RunFunction) else None,
        operator=operator,
        is_builtin=isinstance(spec.run, RunBuiltin),
        credentials=tuple(_credential(name, use) for use in used),
        input=schemas.compiled(spec.input),
        output=schemas.compiled(spec.output),
        wrapped=wrapped,
        dollars_per_call=spec.cost.dollars_per_call,
        dollars_per_second=spec.cost.dollars_per_second,
    )


def backend_of(tool: HostedTool, sandboxes: Sandboxes, authorities: Sequence[Grants]) -> str:
    return required_backend(sandboxes.deployed, tool=tool.needs, authorities=authorities)


async def permit(tool: HostedTool, sandboxes: Sandboxes, authorities: Sequence[Grants]) -> Permit:
    """Refused where a need is not granted, and where the backend that somebody insists on does not stand."""
    backend = backend_of(tool, sandboxes, authorities)
    # Grants first: who may not run at all need not learn what stands here.
    compile_profile(tool.needs, backend=backend, isolation="full", folder=tool.folder, authorities=authorities)
    sandbox = await sandboxes.of(backend)
    profile = compile_profile(
        tool.needs, backend=backend, isolation=sandbox.isolation, folder=tool.folder, authorities=authorities
    )
    if tool.is_builtin and profile.readable:
        readable = os.pathsep.join(profile.readable)
        profile = msgspec.structs.replace(profile, environment={**profile.environment, "AGENTFLOW_READABLE": readable})
    grants = tuple(_grant(tool.name, text) for text in profile.network)
    return Permit(profile, profile_hash(profile), sandbox, grants)


def _implied(call: str | Command | Container | WasmModule) -> str | None:
    """The weakest backend that can run this kind of program at all."""
    match call:
        case Container():
            return "docker"
        case WasmModule():
            return "wasm"
        case _:
            return None


def _running(
    tool: LoadedTool, folder: str
) -> tuple[str | Command | Container | WasmModule, tuple[str, ...], dict[str, Any] | None]:
    run = tool.definition.spec.run
    match run:
        case RunFunction():
            return run.call, (folder,), None
        case RunBuiltin():
            return f"{tool.definition.name.replace('.', '_')}:run", (_BUILTIN,), None
        case RunCommand():
            return Command(run.argv), (), None
        case RunContainer():
            return Container(run.image, run.argv), (), None
        case RunWasm():
            return WasmModule(str(Path(folder) / run.file)), (), None
        case RunHttp():
            return "http_call:run", (_BUILTIN,), {"url": run.url, "method": run.method, "headers": run.headers}
        case _:
            assert_never(run)


def _grant(tool: str, text: str) -> Grant:
    try:
        return parse_grant(text)
    except Refused as refused:
        raise UnusableGrant(tool, text, refused.message) from None


def _credential(tool: str, use: CredentialUse) -> Credential:
    try:
        return Credential(host=parse_host(use.host), secret=use.secret, header=use.header, format=use.format)
    except Refused as refused:
        raise UnusableGrant(tool, use.host, refused.message) from None
