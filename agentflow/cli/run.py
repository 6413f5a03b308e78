"""`af run`: start an execution and watch it, step by step, to its end."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentflow.cli.output import JsonFlag, print_json, print_value, stderr, stdout
from agentflow.process_exit import ExecutionDidNotComplete

if TYPE_CHECKING:
    from rich.console import Console

    from agentflow.sdk.client import Client
    from agentflow.sdk.models import Execution


def run(
    workflow: Annotated[str, typer.Argument(help="A workflow's name, name@version, or id.", show_default=False)],
    pairs: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY=VALUE]...", help="Fields of the input, laid over --input.", show_default=False),
    ] = None,
    input: Annotated[
        str | None, typer.Option("--input", "-i", help="JSON, @FILE, or - for stdin.", show_default=False)
    ] = None,
    input_file: Annotated[
        Path | None, typer.Option("--input-file", help="A file with JSON.", show_default=False)
    ] = None,
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Start it and do not wait.")] = False,
    key: Annotated[
        str | None, typer.Option("--key", help="The same key again gives the same execution.", show_default=False)
    ] = None,
    priority: Annotated[int, typer.Option("--priority", help="Higher goes first among those that wait.")] = 0,
    delay: Annotated[
        str | None, typer.Option("--delay", help="Begin after this long, such as 10m.", show_default=False)
    ] = None,
    at: Annotated[str | None, typer.Option("--at", help="Begin at this moment (RFC 3339).", show_default=False)] = None,
    json: JsonFlag = False,
) -> None:
    """Execute a workflow, showing each step as it happens, then its output.

    Progress goes to stderr and the output to stdout.
    Exits with 4 when the execution fails.
    Ctrl-C stops watching; the execution goes on.

    \b
    Examples:
      af run support customer=Mara ticket="I cannot log in"
      af run support --input '{"customer": "Mara", "ticket": "I cannot log in"}'
      af run support@1.0.0 --input @ticket.json --json | jq .output
      cat ticket.json | af run support --input - --detach
      af run support --input @ticket.json --key ticket-4711
      af run report --delay 10m --detach
    """
    from agentflow.cli.inputs import execution_input

    given = execution_input(input, input_file, pairs or [])
    how = {"key": key, "priority": priority, "delay": delay, "start_at": at}
    asyncio.run(_run(workflow, given, how, detach, json))


async def _run(workflow: str, given: Any, how: dict[str, Any], detach: bool, json: bool) -> None:
    from agentflow.cli.connection import control_plane

    async with control_plane() as api:
        started = await api.execute(workflow, given, **how)
        if detach:
            if json:
                print_json(started)
            else:
                stdout().print(started.execution_id)
            return
        console = None if json else stderr()
        try:
            ended = await watch(api, started.execution_id, console)
        except asyncio.CancelledError:
            stderr().print(
                f"stopped watching; {started.execution_id} goes on: af executions show {started.execution_id}"
            )
            raise
    if json:
        print_json(ended)
    elif ended.status == "completed":
        print_value(ended.output)
    if ended.status != "completed":
        raise ExecutionDidNotComplete(ended.id, failure_of(ended))


async def watch(api: "Client", execution: str, console: "Console | None") -> "Execution":
    """Follow an execution to its end, drawing each outcome on `console` if there is one."""
    from agentflow.cli.progress import StepLines, event_from_api, print_line

    if console is not None:
        console.print(execution, style="dim")
    lines = StepLines()
    async for told in api.follow(execution):
        event = event_from_api(told)
        line = None if event is None else lines.line(event)
        if console is not None and line is not None:
            print_line(console, line)
    return await api.execution(execution)


def failure_of(ended: "Execution") -> str:
    return f"{ended.error.code}: {ended.error.message}" if ended.error else f"it is {ended.status}"
