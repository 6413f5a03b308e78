"""From a definition to a tool that can be called: what runs, under which profile, with which way out.

Called by `agent` for pinned definitions and by `wiring` for those of the agents file. Compiling a profile is
`sandbox.policy`'s work; this adds what a definition implies (a URL's code, a secret's host, a folder's name).
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
from sandbox.policy import MIB, OPERATOR, ExecProfile, Grants, SecretRef, ToolNeeds, compile_profile, profile_hash
from sandbox.runner import Sandbox
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
    profile: ExecProfile
    effect: str
    grants: tuple[Grant, ...] = ()
    credentials: tuple[Credential, ...] = ()
    input: Any = None  # compiled schemas, None where they say nothing
    output: Any = None
    wrapped: dict[str, Any] | None = None  # an HTTP tool's address: the code that calls it gets the input inside
    dollars_per_call: float = 0.0
    dollars_per_second: float = 0.0

    @property
    def profile_hash(self) -> str:
        return profile_hash(self.profile)

    @property
    def has_workspace(self) -> bool:
        return _WORKSPACE in self.profile.permissions

    def given(self, input: Any) -> Any:
        return input if self.wrapped is None else {**self.wrapped, "input": input}


def host(
    tool: LoadedTool,
    *,
    sandbox: Sandbox,
    folder: str,
    permissions: Sequence[str] = (),
    credentials: Sequence[CredentialUse] = (),
    tenant: Grants = OPERATOR,
) -> HostedTool:
    """`permissions` and `credentials` are what the operator adds where the tool is hosted."""
    name, spec = tool.definition.name, tool.definition.spec
    used = (*spec.credentials, *credentials)
    needs = ToolNeeds(
        name=name,
        timeout_s=spec.timeout / 1000,
        memory_bytes=spec.memory_mb * MIB,
        permissions=tuple(dict.fromkeys((*spec.permissions, *permissions))),
        environment=spec.environment,
        secrets=tuple(dict.fromkeys(SecretRef(use.secret, (use.host,)) for use in used)),
        sandbox=spec.sandbox,
    )
    profile = compile_profile(needs, backend=sandbox.backend, isolation=sandbox.isolation, folder=folder, tenant=tenant)
    if isinstance(spec.run, RunBuiltin) and profile.readable:
        readable = os.pathsep.join(profile.readable)
        profile = msgspec.structs.replace(profile, environment={**profile.environment, "AGENTFLOW_READABLE": readable})
    call, path, wrapped = _running(tool, folder)
    return HostedTool(
        name=name,
        version=tool.definition.version,
        digest=tool.digest,
        call=call,
        path=path,
        profile=profile,
        effect=spec.effect,
        grants=tuple(_grant(name, text) for text in profile.network),
        credentials=tuple(_credential(name, use) for use in used),
        input=schemas.compiled(spec.input),
        output=schemas.compiled(spec.output),
        wrapped=wrapped,
        dollars_per_call=spec.cost.dollars_per_call,
        dollars_per_second=spec.cost.dollars_per_second,
    )


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
