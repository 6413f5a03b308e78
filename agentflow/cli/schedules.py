"""`af schedule`: executions that begin by the clock."""

from typing import TYPE_CHECKING, Annotated

import typer

from agentflow.cli.asking import ask
from agentflow.cli.inputs import execution_input
from agentflow.cli.output import JsonFlag, print_json, print_table, print_value, stdout

if TYPE_CHECKING:
    from agentflow.sdk.models import Schedule

app = typer.Typer(no_args_is_help=True, help="Executions that begin by the clock: cron expressions and intervals.")

NameArgument = Annotated[str, typer.Argument(help="A schedule's name.", show_default=False)]


@app.command()
def create(
    name: NameArgument,
    workflow: Annotated[str, typer.Argument(help="A workflow's name, name@version, or id.", show_default=False)],
    cron: Annotated[
        str | None, typer.Option("--cron", help="Five fields, as in a crontab.", show_default=False)
    ] = None,
    every: Annotated[str | None, typer.Option("--every", help="An interval such as 15m.", show_default=False)] = None,
    timezone: Annotated[str, typer.Option("--timezone", help="Where the cron expression is read.")] = "UTC",
    input: Annotated[
        str | None, typer.Option("--input", "-i", help="JSON, @FILE, or - for stdin.", show_default=False)
    ] = None,
    overlap: Annotated[str, typer.Option("--overlap", help="While one is under way: skip, queue or allow.")] = "skip",
    catch_up: Annotated[str, typer.Option("--catch-up", help="Make up for what was missed this long.")] = "1m",
    jitter: Annotated[str, typer.Option("--jitter", help="Start up to this much later, by chance.")] = "0s",
    starts_at: Annotated[str | None, typer.Option("--starts-at", help="RFC 3339.", show_default=False)] = None,
    ends_at: Annotated[str | None, typer.Option("--ends-at", help="RFC 3339.", show_default=False)] = None,
    paused: Annotated[bool, typer.Option("--paused", help="Make it, and do not let it fire yet.")] = False,
    json: JsonFlag = False,
) -> None:
    """Let a workflow begin by the clock. Creating the same again changes nothing.

    \b
    Examples:
      af schedule create morning-report report --cron "0 8 * * 1-5" --timezone Europe/Berlin
      af schedule create poll inbox --every 15m --overlap queue --input '{"folder": "new"}'
    """
    given = execution_input(input, None, [])
    when = {
        "cron": cron, "every": every, "timezone": timezone, "overlap": overlap, "catch_up": catch_up, "jitter": jitter,
        "starts_at": starts_at, "ends_at": ends_at, "paused": paused or None,
    }  # fmt: skip
    made: Schedule = ask(lambda api: api.create_schedule(name, workflow, given, **when))
    _told(made, json)


@app.command("list")
def list_schedules(
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="At most this many.", show_default=False)] = None,
    json: JsonFlag = False,
) -> None:
    """List schedules by name.

    \b
    Examples:
      af schedule list
    """
    found = ask(lambda api: api.schedules(limit=limit))
    if json:
        print_json(found)
        return
    if not found.items:
        stdout().print("No schedules. Make one with `af schedule create NAME WORKFLOW --cron …`.")
        return
    rows = [
        (one.name, one.workflow, one.cron or f"every {one.every}", one.status, one.next_at or "never", str(one.fired))
        for one in found.items
    ]
    print_table(("NAME", "WORKFLOW", "WHEN", "STATUS", "NEXT", "FIRED"), rows)


@app.command()
def show(name: NameArgument, json: JsonFlag = False) -> None:
    """Show a schedule and what it fired lately.

    \b
    Examples:
      af schedule show morning-report
    """
    found: Schedule = ask(lambda api: api.schedule(name))
    if json:
        print_json(found)
        return
    console = stdout()
    console.print(f"{found.name}  {found.status}", style="bold")
    console.print(f"workflow  {found.workflow}")
    console.print(f"when      {found.cron or f'every {found.every}'} ({found.timezone}), overlap {found.overlap}")
    console.print(f"next      {found.next_at or 'never'}")
    console.print(f"fired     {found.fired}, skipped {found.skipped}, missed {found.missed}")
    for at in found.waiting:
        console.print(f"waiting   {at}, for an earlier one to end")
    for fire in found.recent:
        console.print(f"{fire.outcome:<9} {fire.at}  {fire.execution or fire.reason}")
    console.print("input")
    print_value(found.input)


@app.command()
def pause(name: NameArgument, json: JsonFlag = False) -> None:
    """Let a schedule fire no more. Executions it has started go on.

    \b
    Examples:
      af schedule pause morning-report
    """
    _told(ask(lambda api: api.pause_schedule(name)), json)


@app.command()
def resume(name: NameArgument, json: JsonFlag = False) -> None:
    """Let a paused schedule fire again, from its next moment on.

    \b
    Examples:
      af schedule resume morning-report
    """
    _told(ask(lambda api: api.resume_schedule(name)), json)


@app.command()
def delete(name: NameArgument) -> None:
    """Remove a schedule. Executions it has started go on.

    \b
    Examples:
      af schedule delete morning-report
    """
    ask(lambda api: api.delete_schedule(name))
    stdout().print(f"{name} is gone.")


@app.command()
def trigger(
    name: NameArgument,
    key: Annotated[
        str | None, typer.Option("--key", help="The same key again gives the same execution.", show_default=False)
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Start an execution of a schedule now, beside its moments.

    \b
    Examples:
      af schedule trigger morning-report
    """
    execution: str = ask(lambda api: api.trigger_schedule(name, key=key))
    if json:
        print_json({"execution_id": execution})
    else:
        stdout().print(execution)


def _told(schedule: "Schedule", json: bool) -> None:
    if json:
        print_json(schedule)
    else:
        stdout().print(f"{schedule.name} is {schedule.status}; it fires next {schedule.next_at or 'never'}.")
