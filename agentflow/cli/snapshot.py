"""`af snapshot`: immutable records of executions: take one, look at those there are, keep one as a folder, check it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentflow.cli.asking import ask
from agentflow.cli.orders import ExecutionArgument
from agentflow.cli.output import JsonFlag, print_json, print_table, stdout

if TYPE_CHECKING:
    from agentflow.sdk.client import Client
    from agentflow.sdk.snapshots import Snapshot, SnapshotList

app = typer.Typer(no_args_is_help=True, help="Take, list, read and check the immutable records of executions.")

SnapshotArgument = Annotated[str, typer.Argument(help="A snapshot's id.", show_default=False)]


@app.command()
def take(
    execution: ExecutionArgument,
    version: Annotated[
        int | None, typer.Option("--version", min=1, help="After so many of its events; else now.", show_default=False)
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Take the record of an execution, to be kept when its history is gone. Taking the same again changes nothing.

    \b
    Examples:
      af snapshot take exec_01JD3ZJ4W3E5V8Q2N7M0K1T9XA
      af snapshot take exec_01JD3ZJ4W3E5V8Q2N7M0K1T9XA --version 12 --json
    """
    taken: Snapshot = ask(lambda api: api.snapshots.take(execution, version=version))
    if json:
        print_json(taken)
    else:
        stdout().print(f"{taken.id}  version {taken.version} of {taken.execution_id}, digest {taken.digest}")


@app.command("list")
def list_snapshots(
    execution: Annotated[str | None, typer.Option("--execution", help="Of this one.", show_default=False)] = None,
    workflow: Annotated[
        str | None, typer.Option("--workflow", help="Of executions of this workflow.", show_default=False)
    ] = None,
    since: Annotated[
        str | None, typer.Option("--since", help="Taken from this moment on, RFC 3339.", show_default=False)
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="At most this many.", show_default=False)] = None,
    json: JsonFlag = False,
) -> None:
    """List snapshots, the newest first.

    \b
    Examples:
      af snapshot list --workflow support --since 2026-11-01T00:00:00Z
      af snapshot list --execution exec_01JD3ZJ4W3E5V8Q2N7M0K1T9XA --json
    """
    wanted = {"execution": execution, "workflow": workflow, "taken_after": since}
    found: SnapshotList = ask(lambda api: api.snapshots.list(limit=limit, **wanted))
    if json:
        print_json(found)
        return
    if not found.items:
        stdout().print("No snapshots. Take one with `af snapshot take EXECUTION`.")
        return
    rows = [
        (one.id, one.taken_at, one.execution_id, str(one.version), one.status, _named(one), str(one.bytes))
        for one in found.items
    ]
    print_table(("ID", "TAKEN", "EXECUTION", "VERSION", "STATUS", "WORKFLOW", "BYTES"), rows)


@app.command()
def show(snapshot: SnapshotArgument, json: JsonFlag = False) -> None:
    """Show what a snapshot is of.

    \b
    Examples:
      af snapshot show snap_01JD3ZJ4W3E5V8Q2N7M0K1T9XA
    """
    found: Snapshot = ask(lambda api: api.snapshots.show(snapshot))
    if json:
        print_json(found)
        return
    console = stdout()
    console.print(f"{found.id}  taken {found.taken_at}", style="bold")
    console.print(f"execution  {found.execution_id}, version {found.version}: {found.status}")
    console.print(f"workflow   {_named(found)}")
    console.print(f"ended      {found.ended_at or 'not then'}")
    console.print(f"content    {found.bytes} bytes, digest {found.digest}")


@app.command()
def export(
    record: Annotated[str, typer.Argument(help="The id of an execution or of a snapshot.", show_default=False)],
    to: Annotated[
        Path | None, typer.Option("--to", help="The folder to make; else the id's own.", show_default=False)
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Write the record of an execution, as it is now or as a snapshot has it, into a new folder.

    \b
    Examples:
      af snapshot export exec_01JD3ZJ4W3E5V8Q2N7M0K1T9XA
      af snapshot export snap_01JD3ZJ4W3E5V8Q2N7M0K1T9XA --to records/march
    """
    from agentflow.cli.bundles import BundleExists, export_execution, export_snapshot

    folder = to or Path(record)
    if folder.exists():
        raise BundleExists(folder)

    async def written(api: "Client") -> dict[str, Any]:
        if record.startswith("snap_"):
            return await export_snapshot(api, await api.snapshots.show(record), folder)
        return await export_execution(api, record, folder)

    index = ask(written)
    if json:
        print_json(index)
    else:
        stdout().print(f"{folder}: {index['events']} events, digest {index['digest']}")


@app.command()
def verify(
    folder: Annotated[Path, typer.Argument(help="A folder that `af snapshot export` made.", show_default=False)],
    json: JsonFlag = False,
) -> None:
    """Check that a record is whole and unchanged. Needs no control plane.

    \b
    Examples:
      af snapshot verify exec_01JD3ZJ4W3E5V8Q2N7M0K1T9XA
    """
    from agentflow.cli.bundles import BundleBroken, checked

    index, problems = checked(folder)
    if problems:
        raise BundleBroken(folder, problems)
    if json:
        print_json({"execution": index["execution"], "digest": index["digest"], "events": index["events"]})
    else:
        stdout().print(f"whole: {index['execution']}, {index['events']} events, digest {index['digest']}")


@app.command()
def delete(snapshot: SnapshotArgument) -> None:
    """Remove a snapshot with all that it holds.

    \b
    Examples:
      af snapshot delete snap_01JD3ZJ4W3E5V8Q2N7M0K1T9XA
    """
    ask(lambda api: api.snapshots.delete(snapshot))
    stdout().print(f"{snapshot} is gone.")


def _named(snapshot: "Snapshot") -> str:
    return f"{snapshot.workflow.name}@{snapshot.workflow.version}"
