"""`af executions fork`: another execution with the beginning of one, or of every one that failed at a step."""

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentflow.cli.inputs import UnusableInput, execution_input
from agentflow.cli.looking_back import app
from agentflow.cli.output import JsonFlag, print_json, stdout

if TYPE_CHECKING:
    from agentflow.sdk.models import StartedExecution

__all__ = ["app"]  # the commands of `af executions`, with this one added

_GIVEN = "JSON, @FILE, or - for standard input."


@app.command()
def fork(
    execution: Annotated[str | None, typer.Argument(help="An execution's id.", show_default=False)] = None,
    from_: Annotated[
        str | None,
        typer.Option("--from", help="The path of a step that runs again, with all that follows.", show_default=False),
    ] = None,
    after: Annotated[
        str | None,
        typer.Option("--after", help="The path of a step whose outcome stands.", show_default=False),
    ] = None,
    input: Annotated[str | None, typer.Option("--input", help=f"With --from: its input. {_GIVEN}")] = None,
    output: Annotated[str | None, typer.Option("--output", help=f"With --after: its outcome. {_GIVEN}")] = None,
    vars: Annotated[str | None, typer.Option("--vars", help=f"New values of variables. {_GIVEN}")] = None,
    failed_at: Annotated[
        str | None,
        typer.Option("--failed-at", help="Fork every execution that failed at this step, from it.", show_default=False),
    ] = None,
    workflow: Annotated[
        str | None, typer.Option("--workflow", help="With --failed-at: of this workflow.", show_default=False)
    ] = None,
    since: Annotated[
        str | None,
        typer.Option("--since", help="With --failed-at: started since, RFC 3339.", show_default=False),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="With --failed-at: only count them.")] = False,
    reason: Annotated[str, typer.Option("--reason", help="Why; kept with the event.", show_default=False)] = "",
    json: JsonFlag = False,
) -> None:
    """Start another execution with the events of one up to a step, and go on from there.

    What was recorded is not done again, and the original is only read. A step that ran several times is `step~2`,
    `step~3` …: `af executions show --events` has the paths.

    \b
    Examples:
      af executions fork exec_01JD3ZJ4W3E5V8Q2N7M0K1T9XA --from generate
      af executions fork exec_01JD3ZJ4W3E5V8Q2N7M0K1T9XA --from generate --input '{"prompt": "shorter"}'
      af executions fork exec_01JD3ZJ4W3E5V8Q2N7M0K1T9XA --after classify~2 --output '{"urgent": true}'
      af executions fork --failed-at charge --workflow orders --since 2026-11-18T00:00:00Z --dry-run
    """
    edits = {
        name: execution_input(text, None, ())
        for name, text in (("input", input), ("output", output), ("vars", vars))
        if text is not None
    }
    if (execution is None) == (failed_at is None):
        raise UnusableInput("which executions is not clear", "Name one, or give --failed-at STEP.")
    if execution is None or failed_at is not None:
        if from_ is not None or after is not None or "output" in edits:
            raise UnusableInput("--failed-at is the place already", "Leave --from, --after and --output away.")
        asyncio.run(_fork_failed(str(failed_at), workflow, since, edits, reason, dry_run, json))
        return
    if (from_ is None) == (after is None):
        raise UnusableInput("the place is not clear", "Give --from STEP or --after STEP.")
    asyncio.run(_fork_one(execution, from_, after, edits, reason, json))


async def _fork_one(
    execution: str, from_: str | None, after: str | None, edits: dict[str, Any], reason: str, json: bool
) -> None:
    from agentflow.cli.connection import control_plane

    async with control_plane() as api:
        started = await api.fork(execution, from_=from_, after=after, reason=reason, **edits)
    if json:
        print_json(started)
    else:
        stdout().print(f"{started.execution_id} is {started.status}.")


async def _fork_failed(
    step: str, workflow: str | None, since: str | None, edits: dict[str, Any], reason: str, dry_run: bool, json: bool
) -> None:
    from agentflow.cli.connection import control_plane

    forks: dict[str, StartedExecution | None] = {}
    async with control_plane() as api:
        found = [one.id async for one in api.failed_at(step, workflow=workflow, since=since)]  # before any is added
        for execution in found:
            forks[execution] = None if dry_run else await api.fork(execution, from_=step, reason=reason, **edits)
    if json:
        told = {execution: None if fork is None else fork.execution_id for execution, fork in forks.items()}
        print_json({"failed_at": step, "count": len(forks), "forks": told})
        return
    for execution, fork in forks.items():
        stdout().print(execution if fork is None else f"{execution} → {fork.execution_id}")
    stdout().print(f"{len(forks)} {'would be forked' if dry_run else 'forked'} from `{step}`.")
