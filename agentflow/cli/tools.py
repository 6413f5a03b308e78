"""`af tool`: register tool definitions, look at those there are, and try one out."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentflow.cli.definitions import push_files
from agentflow.cli.output import JsonFlag, print_json, print_table, print_value, stderr, stdout
from agentflow.errors import Rejected

if TYPE_CHECKING:
    from agentflow.sdk.models import PushedTool

_FAMILIES = ("network", "fs", "db", "k8s", "wasi", "secret")  # what a permission begins with; anything else is a host

app = typer.Typer(no_args_is_help=True, help="Register tools, look at them, try them out.")


class ToolFailed(Rejected):
    """The tool's own failure in a test: neither the caller's mistake nor ours."""

    code = "AF1436"

    def __init__(self, tool: str, code: str, message: str) -> None:
        super().__init__(
            f"{tool} failed with {code}: {message}",
            hint="Its log is printed above; `--network` lets it reach the hosts it is granted.",
        )


class BuiltinIsGranted(Rejected):
    code = "AF1440"

    def __init__(self, tool: str, permission: str) -> None:
        super().__init__(
            f"{tool} is built in: what it may reach is granted where it is hosted.",
            hint=f"Add `{permission}` to `permissions` of `{tool}: {{type: builtin}}` in the worker's agents file.",
        )


class FileIsThere(Rejected):
    code = "AF1441"

    def __init__(self, path: Path) -> None:
        super().__init__(f"{path} is there already.", hint="Name the file to write with --to; that one is replaced.")


@app.command()
def push(
    files: Annotated[list[Path], typer.Argument(help="Definitions, as YAML or JSON.", show_default=False)],
    json: JsonFlag = False,
) -> None:
    """Register tools with the control plane. Pushing the same content again changes nothing.

    \b
    Examples:
      af tool push crm-lookup.yaml
      af tool push tools/*.yaml --json
    """
    asyncio.run(push_files(files, lambda api, text, kind: api.push_tool(text, kind), _told, json=json))


def _told(_: Path, tool: "PushedTool") -> None:
    stdout().print(f"{'registered' if tool.created else 'unchanged'} {tool.name} {tool.version}")


@app.command("list")
def list_tools(
    name: Annotated[str | None, typer.Option(help="Only the versions of this tool.", show_default=False)] = None,
    json: JsonFlag = False,
) -> None:
    """List registered and built-in tools.

    \b
    Examples:
      af tool list
      af tool list --name crm.lookup --json
    """
    asyncio.run(_list(name, json))


async def _list(name: str | None, json: bool) -> None:
    from agentflow.cli.connection import control_plane

    async with control_plane() as api:
        found = await api.tools(name=name)
    if json:
        print_json(found)
        return
    if not found.items:
        stdout().print("No such tool. Register one with `af tool push FILE`.")
        return
    rows = [
        (tool.name, tool.version, tool.type, tool.effect, ", ".join(tool.permissions) or "nothing")
        for tool in found.items
    ]
    print_table(("NAME", "VERSION", "TYPE", "EFFECT", "NEEDS"), rows)
    if found.total_count > len(found.items):
        stdout().print(f"{len(found.items)} of {found.total_count}; narrow it down with --name.", style="dim")


@app.command()
def show(
    ref: Annotated[str, typer.Argument(help="A name, name@1 or name@1.2.0.", show_default=False)],
    json: JsonFlag = False,
) -> None:
    """Show a tool: what it takes, what it answers, what it needs.

    \b
    Examples:
      af tool show http.request
      af tool show crm.lookup@1.2.0 --json
    """
    asyncio.run(_show(ref, json))


async def _show(ref: str, json: bool) -> None:
    from agentflow.cli.connection import control_plane

    async with control_plane() as api:
        tool = await api.tool(ref)
    if json:
        print_json(tool)
        return
    console = stdout()
    console.print(f"{tool.name} {tool.version}", style="bold")
    if tool.description:
        console.print(tool.description)
    console.print(f"type     {tool.type}\neffect   {tool.effect}\ndigest   {tool.digest}")
    console.print(f"needs    {', '.join(tool.permissions) or 'nothing'}\n")
    print_value(tool.definition["spec"])


@app.command()
def allow(
    ref: Annotated[str, typer.Argument(help="A registered tool: a name, name@1 or name@1.2.0.", show_default=False)],
    permission: Annotated[
        str, typer.Argument(help="A host, or a permission as a refusal names it.", show_default=False)
    ],
    to: Annotated[Path | None, typer.Option(help="The file to write.", show_default="NAME-VERSION.yaml")] = None,
) -> None:
    """Write the next version of a tool with one permission more, for review. Nothing changes until it is pushed.

    \b
    Examples:
      af tool allow crm.lookup api.example.com
      af tool allow crm.lookup network.http:pypi.org --to tools/crm-lookup.yaml
    """
    asyncio.run(_allow(ref, permission, to))


async def _allow(ref: str, permission: str, to: Path | None) -> None:
    from agentflow.cli.connection import control_plane

    async with control_plane() as api:
        tool = await api.tool(ref)
    family = permission.partition(".")[0]
    wanted = permission if family in _FAMILIES else f"network.http:{permission}"
    if tool.builtin:
        raise BuiltinIsGranted(tool.name, wanted)
    if wanted in tool.permissions:
        stdout().print(f"{tool.name} {tool.version} asks for `{wanted}` already; see `registered_tools` of the worker.")
        return
    definition, version = with_permission(tool.definition, wanted)
    path = to or Path(f"{tool.name}-{version}.yaml")
    if path.exists() and to is None:
        raise FileIsThere(path)
    import yaml

    path.write_text(yaml.safe_dump(definition, sort_keys=False, allow_unicode=True), encoding="utf-8")
    stdout().print(f"wrote {path}: {tool.name} {tool.version} → {version}\n+ {wanted}")
    stdout().print(f"Have it reviewed, then: af tool push {path}", style="dim")


def with_permission(definition: dict[str, Any], permission: str) -> tuple[dict[str, Any], str]:
    """The definition's next minor version, which asks for one thing more and is otherwise the same."""
    major, minor, _ = definition["metadata"]["version"].partition("-")[0].partition("+")[0].split(".")
    version = f"{major}.{int(minor) + 1}.0"
    spec = definition["spec"]
    asked = {**spec, "permissions": [*spec.get("permissions", []), permission]}
    return {**definition, "metadata": {**definition["metadata"], "version": version}, "spec": asked}, version


@app.command("test")
def try_out(
    ref: Annotated[str, typer.Argument(help="A name, name@1 or name@1.2.0.", show_default=False)],
    input: Annotated[
        str, typer.Option("--input", "-i", help="JSON, @file, or - for stdin.", show_default=False)
    ] = "{}",
    network: Annotated[bool, typer.Option("--network", help="Let it reach the hosts it is granted.")] = False,
    json: JsonFlag = False,
) -> None:
    """Call a tool once, in the sandbox of some worker, outside of any execution. Reaches no host unless told to.

    \b
    Examples:
      af tool test json.transform --input '{"value": {"a": 1}, "template": "$.a"}'
      af tool test crm.lookup --input @lookup.json --network
    """
    asyncio.run(_try_out(ref, input, network, json))


async def _try_out(ref: str, text: str, network: bool, json: bool) -> None:
    from agentflow.cli.connection import control_plane
    from agentflow.cli.inputs import execution_input

    given: Any = execution_input(text, None, ())
    async with control_plane() as api:
        outcome = await api.test_tool(ref, given, network=network)
    if json:
        print_json(outcome)
    else:
        if outcome.logs:
            stderr().print(outcome.logs.rstrip(), style="dim")
        if outcome.fault is None:
            print_value(outcome.output)
            fenced = f"{outcome.backend}, isolation {outcome.isolation}, profile {outcome.profile_hash[:12]}"
            stderr().print(f"{outcome.duration_ms} ms in {fenced}", style="dim")
    if outcome.fault is not None:
        raise ToolFailed(f"{outcome.tool} {outcome.version}", outcome.fault.code, outcome.fault.message)
