"""`af executions`: what ran, what runs, and what happened in it."""

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from agentflow.cli.durations import took
from agentflow.cli.output import JsonFlag, print_json, print_table, print_value, stdout

if TYPE_CHECKING:
    from agentflow.sdk.models import Execution, ExecutionEvent

app = typer.Typer(invoke_without_command=True)

WorkflowOption = Annotated[
    str | None, typer.Option("--workflow", help="Only executions of this workflow.", show_default=False)
]
StatusOption = Annotated[
    str | None,
    typer.Option("--status", help="queued, running, paused, completed, failed or cancelled.", show_default=False),
]
LimitOption = Annotated[int | None, typer.Option("--limit", min=1, help="At most this many.", show_default=False)]


@app.callback()
def executions(
    context: typer.Context,
    workflow: WorkflowOption = None,
    status: StatusOption = None,
    limit: LimitOption = None,
    json: JsonFlag = False,
) -> None:
    """List executions and look into them. Without a command: the list.

    \b
    Examples:
      af executions
      af executions show exec_01JD3ZJ4W3E5V8Q2N7M0K1T9XA --events
    """
    if context.invoked_subcommand is None:
        asyncio.run(_list(workflow, status, limit, json))


@app.command("list")
def list_executions(
    workflow: WorkflowOption = None, status: StatusOption = None, limit: LimitOption = None, json: JsonFlag = False
) -> None:
    """List executions, newest first.

    \b
    Examples:
      af executions list --workflow support --status failed
      af executions list --limit 5 --json
    """
    asyncio.run(_list(workflow, status, limit, json))


async def _list(workflow: str | None, status: str | None, limit: int | None, json: bool) -> None:
    from agentflow.cli.connection import control_plane

    async with control_plane() as api:
        found = await api.executions(workflow=workflow, status=status, limit=limit)
    if json:
        print_json(found)
        return
    if not found.items:
        stdout().print("No executions. Start one with `af run WORKFLOW`.")
        return
    rows = [
        (
            item.id,
            f"{item.workflow.name}@{item.workflow.version}",
            item.status,
            item.started_at,
            took(item.started_at, item.ended_at),
        )
        for item in found.items
    ]
    print_table(("ID", "WORKFLOW", "STATUS", "STARTED", "TOOK"), rows)
    if found.total_count is not None and found.total_count > len(found.items):
        stdout().print(f"{len(found.items)} of {found.total_count}; see more with --limit.", style="dim")


@app.command()
def show(
    execution: Annotated[str, typer.Argument(help="An execution's id.", show_default=False)],
    events: Annotated[bool, typer.Option("--events", help="Also every committed event.")] = False,
    json: JsonFlag = False,
) -> None:
    """Show where an execution stands, its result, and what happened in it.

    \b
    Examples:
      af executions show exec_01JD3ZJ4W3E5V8Q2N7M0K1T9XA
      af executions show exec_01JD3ZJ4W3E5V8Q2N7M0K1T9XA --events --json
    """
    asyncio.run(_show(execution, events, json))


async def _show(execution: str, with_events: bool, json: bool) -> None:
    from agentflow.cli.connection import control_plane

    async with control_plane() as api:
        found = await api.execution(execution)
        events = await api.history(execution) if with_events else None
    if json:
        print_json({"execution": found, "events": events} if events is not None else found)
        return
    _print_execution(found)
    if events is not None:
        _print_events(events)


def _print_execution(execution: "Execution") -> None:
    console = stdout()
    lasted = took(execution.started_at, execution.ended_at)
    console.print(f"{execution.id}  {execution.status}", style="bold")
    console.print(f"workflow  {execution.workflow.name} {execution.workflow.version}  ({execution.workflow.id})")
    console.print(f"started   {execution.started_at}" + (f", took {lasted}" if lasted else ""))
    console.print(f"trace     {execution.trace_id}")
    if execution.queue is not None:
        at = execution.queue.get("start_at")
        console.print(f"waiting   until {at}" if at else "waiting   for room to begin")
    for step in execution.in_flight:
        console.print(f"running   {step.path} on {step.agent}, attempt {step.attempt}, since {step.since}")
    for waiting in execution.waiting:
        console.print(f"waiting   {waiting.path}, attempt {waiting.attempt} at {waiting.retry_at}")
    for timer in execution.timers:
        console.print(f"waiting   {timer['key']}, until {timer['due_at']}")
    for signal in execution.signals:
        console.print(f"waiting   {signal['key']}, for the signal {signal['name']}")
    for child in execution.children:
        console.print(f"waiting   {child['path']}, for its child {child['workflow']}")
    for task in execution.tasks:
        console.print(f"waiting   {task['path']}, for a person")
    if execution.error is not None:
        console.print(f"error     {execution.error.code}: {execution.error.message}", style="red")
    console.print("input")
    print_value(execution.input)
    if execution.status == "completed":
        console.print("output")
        print_value(execution.output)


def _print_events(events: "list[ExecutionEvent]") -> None:
    stdout().print()
    rows = [(str(event.version), event.at, event.type, str(event.data.get("path", ""))) for event in events]
    print_table(("VERSION", "AT", "EVENT", "STEP"), rows)
