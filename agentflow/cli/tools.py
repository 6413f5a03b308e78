"""`af tool`: register tool definitions, look at those there are, and try one out."""

import asyncio
from pathlib import Path
from typing import Annotated, Any

import typer

from agentflow.cli.output import JsonFlag, print_json, print_table, print_value, stderr, stdout
from agentflow.cli.workflows import definition_text
from agentflow.errors import Invalid, Rejected

app = typer.Typer(no_args_is_help=True, help="Register tools, look at them, try them out.")


class ToolFailed(Rejected):
    """The tool's own failure in a test: neither the caller's mistake nor ours."""

    code = "AF1436"

    def __init__(self, tool: str, code: str, message: str) -> None:
        super().__init__(
            f"{tool} failed with {code}: {message}",
            hint="Its log is printed above; `--network` lets it reach the hosts it is granted.",
        )


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
    asyncio.run(_push(files, json))


async def _push(files: list[Path], json: bool) -> None:
    from agentflow.cli.connection import control_plane

    texts = [(path, definition_text(path)) for path in files]
    pushed = []
    async with control_plane() as api:
        for path, text in texts:
            content_type = "application/json" if path.suffix == ".json" else "application/yaml"
            try:
                tool = await api.push_tool(text, content_type)
            except Invalid as error:
                error.message = f"{path}: {error.message}"
                raise
            pushed.append(tool)
            if not json:
                stdout().print(f"{'registered' if tool.created else 'unchanged'} {tool.name} {tool.version}")
    if json:
        print_json(pushed)


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
