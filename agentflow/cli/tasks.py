"""`af tasks`: what waits for people, over all executions."""

import asyncio
from typing import Annotated

import typer

from agentflow.cli.output import JsonFlag, print_json, print_table, stdout

app = typer.Typer(no_args_is_help=True, help="See what waits for people.")


@app.command("list")
def list_tasks(
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="At most this many.", show_default=False)] = None,
    json: JsonFlag = False,
) -> None:
    """List the open tasks of all executions; whoever waits longest comes first.

    \b
    Examples:
      af tasks list
      af tasks list --limit 5 --json
    """
    asyncio.run(_list(limit, json))


async def _list(limit: int | None, json: bool) -> None:
    from agentflow.cli.connection import control_plane

    async with control_plane() as api:
        found = await api.tasks(limit=limit)
    if json:
        print_json(found)
        return
    if not found.items:
        stdout().print("Nobody is waited for.")
        return
    rows = [
        (item.execution, item.path, item.workflow, item.opened_at, str(item.task.get("title", "")))
        for item in found.items
    ]
    print_table(("execution", "task", "workflow", "since", "title"), rows)
    stdout().print(f"{found.total_count} open. Answer with `af executions answer EXECUTION TASK ANSWER`.", style="dim")
