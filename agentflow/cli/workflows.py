"""`af workflow`: register definitions, and look at those that are."""

import asyncio
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agentflow.cli.definitions import definition_text, push_files
from agentflow.cli.output import JsonFlag, print_json, print_table, stderr, stdout
from agentflow.errors import Problem
from agentflow.process_exit import ExitCode

if TYPE_CHECKING:
    from agentflow.sdk.models import DollarFigure, Figure, PushedWorkflow

app = typer.Typer(no_args_is_help=True, help="Register workflows and look at them.")


@app.command()
def push(
    files: Annotated[list[Path], typer.Argument(help="Definitions, as YAML or JSON.", show_default=False)],
    json: JsonFlag = False,
) -> None:
    """Register workflows with the control plane. Pushing the same content again changes nothing.

    \b
    Examples:
      af workflow push workflow.yaml
      af workflow push workflows/*.yaml --json
    """
    asyncio.run(push_files(files, lambda api, text, kind: api.push_workflow(text, kind), _told, json=json))


def _told(path: Path, workflow: "PushedWorkflow") -> None:
    state = "registered" if workflow.created else "unchanged"
    stdout().print(f"{state} {workflow.name} {workflow.version}  {workflow.id}")
    for warning in workflow.warnings:
        stderr().print(f"warning: {path}:{warning}", style="yellow")


@app.command("list")
def list_workflows(
    name: Annotated[str | None, typer.Option(help="Only the versions of this workflow.", show_default=False)] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="At most this many.", show_default=False)] = None,
    json: JsonFlag = False,
) -> None:
    """List registered workflows, newest first.

    \b
    Examples:
      af workflow list
      af workflow list --name support --json
    """
    asyncio.run(_list(name, limit, json))


async def _list(name: str | None, limit: int | None, json: bool) -> None:
    from agentflow.cli.connection import control_plane

    async with control_plane() as api:
        found = await api.workflows(name=name, limit=limit)
    if json:
        print_json(found)
        return
    if not found.items:
        stdout().print("No workflows yet. Register one with `af workflow push FILE`.")
        return
    rows = [(item.name, item.version, item.planner, item.created_at, item.id) for item in found.items]
    print_table(("NAME", "VERSION", "PLANNER", "CREATED", "ID"), rows)
    if found.total_count > len(found.items):
        stdout().print(f"{len(found.items)} of {found.total_count}; see more with --limit.", style="dim")


@app.command()
def show(
    ref: Annotated[str, typer.Argument(help="An id, a name, or name@version.", show_default=False)],
    json: JsonFlag = False,
) -> None:
    """Show a workflow and the text it was registered with.

    \b
    Examples:
      af workflow show support
      af workflow show support@1.0.0 --json
    """
    asyncio.run(_show(ref, json))


class Form(StrEnum):
    MERMAID = "mermaid"
    JSON = "json"
    GROOT = "groot"


@app.command()
def graph(
    target: Annotated[str, typer.Argument(help="A file, - for stdin, or a registered workflow.", show_default=False)],
    form: Annotated[Form, typer.Option("--format", help="How to draw it.")] = Form.MERMAID,
    json: JsonFlag = False,
) -> None:
    """Draw the plan of a workflow: its steps, and the ways between them.

    \b
    Examples:
      af workflow graph workflow.yaml
      af workflow graph support@1.0.0 --format json
      af workflow graph tree.yaml --format groot > tree.xml
    """
    from agentflow.cli.planning import drawn, judged, print_problems
    from agentflow.cli.services import require

    require("Drawing a workflow", "server", "planners", "cel_expr_python")
    text = _text_of(target)
    plan = drawn(text, "json" if json else form.value)
    if plan is None:
        not_a_tree = Problem("Groot knows behaviour trees only.", "Draw a machine with `--format mermaid`.")
        print_problems(target, judged(text).problems or [not_a_tree])
        raise typer.Exit(ExitCode.REJECTED)
    sys.stdout.write(plan)


@app.command("import")
def import_groot(
    file: Annotated[str, typer.Argument(help="XML that Groot has saved, or - for stdin.", show_default=False)],
    name: Annotated[str | None, typer.Option("--name", help="What the workflow is called.")] = None,
    version: Annotated[str | None, typer.Option("--version", help="Its version; only with a name.")] = None,
) -> None:
    """Print the definition of a behaviour tree that was drawn with Groot (BehaviorTree.CPP 4).

    \b
    Examples:
      af workflow import patrol.xml --name patrol > patrol.json
    """
    from agentflow.cli.planning import from_groot, print_problems
    from agentflow.cli.services import require

    require("Reading a tree", "server", "planners", "cel_expr_python")
    made = from_groot(_text_of(file), name, version)
    if isinstance(made, list):
        print_problems(file, made)
        raise typer.Exit(ExitCode.REJECTED)
    sys.stdout.write(made)


def _text_of(target: str) -> bytes:
    if target == "-":
        return sys.stdin.buffer.read()
    path = Path(target)
    if path.exists() or path.suffix or len(path.parts) > 1:
        return definition_text(path)
    return asyncio.run(_source_of(target)).encode()


async def _source_of(ref: str) -> str:
    from agentflow.cli.connection import control_plane

    async with control_plane() as api:
        return (await api.workflow(ref)).source


async def _show(ref: str, json: bool) -> None:
    from agentflow.cli.connection import control_plane

    async with control_plane() as api:
        workflow = await api.workflow(ref)
    if json:
        print_json(workflow)
        return
    console = stdout()
    console.print(f"{workflow.name} {workflow.version}", style="bold")
    console.print(f"id       {workflow.id}\nplanner  {workflow.planner}\ndigest   {workflow.digest}")
    console.print(f"created  {workflow.created_at}\n")
    console.print(workflow.source.rstrip())


@app.command()
def estimate(
    ref: Annotated[str, typer.Argument(help="An id, a name, name@version, or a plan's hash.", show_default=False)],
    json: JsonFlag = False,
) -> None:
    """Say what the next execution will probably cost, by what earlier ones did.

    \b
    Examples:
      af workflow estimate support
      af workflow estimate support@1.0.0 --json
    """
    asyncio.run(_estimate(ref, json))


async def _estimate(ref: str, json: bool) -> None:
    from agentflow.cli.connection import control_plane

    async with control_plane() as api:
        found = await api.estimate(ref)
    if json:
        print_json(found)
        return
    console = stdout()
    console.print(f"{found.workflow.name} {found.workflow.version}, by {found.executions} executions", style="bold")
    console.print(f"dollars   {_amount(found.dollars)}")
    console.print(f"tokens    {_amount(found.tokens)}")
    console.print(f"duration  {_amount(found.duration_ms)} ms")
    rows = [
        (one.name, one.tool or one.agent, _amount(one.runs), _amount(one.dollars), _amount(one.tokens), one.basis)
        for one in found.steps
    ]
    print_table(("STEP", "BY", "RUNS", "DOLLARS OF ONE", "TOKENS OF ONE", "KNOWN FROM"), rows)
    for one in found.unknown:
        console.print(f"not in the dollars: {one.name}: {one.reason}", style="yellow")


def _amount(figure: "Figure | DollarFigure") -> str:
    """What is expected, and the most in brackets."""
    return f"{_number(figure.expected)} ({_number(figure.upper)})"


def _number(value: float | str | None) -> str:
    if value is None:
        return "?"
    return value if isinstance(value, str) else f"{value:g}"
