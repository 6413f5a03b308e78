"""`af replay`: decide recorded executions again, by their own version or another, and compare with the record."""

import asyncio
import json as jsonlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agentflow.cli.definitions import definition_text
from agentflow.cli.inputs import UnusableInput
from agentflow.cli.output import JsonFlag, print_json, stderr, stdout
from agentflow.errors import Rejected

if TYPE_CHECKING:
    from agentflow.sdk.client import Client
    from agentflow.sdk.models import Divergence, Job, Replay, Replays

_SHOWN_CHARS_MAX = 200


class Diverged(Rejected):
    code = "AF1527"

    def __init__(self, diverged: int, replayed: int, against: str) -> None:
        super().__init__(
            f"{diverged} of {replayed} executions would have gone another way{against}.",
            hint="Look at one with `af replay EXECUTION --against VERSION`, or `--file FILE` before it is registered; "
            "`af deploy --accept-divergence REASON` registers it all the same.",
        )


def replay(
    execution: Annotated[
        str | None, typer.Argument(help="The id of an execution or a snapshot.", show_default=False)
    ] = None,
    against: Annotated[
        str | None, typer.Option("--against", help="Decide by this version instead of its own.", show_default=False)
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", help="Decide by this definition, registered or not.", show_default=False)
    ] = None,
    workflow: Annotated[
        str | None, typer.Option("--workflow", help="The last executions of this workflow.", show_default=False)
    ] = None,
    last: Annotated[int, typer.Option("--last", min=1, help="How many of them.")] = 50,
    json: JsonFlag = False,
) -> None:
    """Decide recorded executions again, touching nothing outside, and compare event by event.

    \b
    Exits with 0 when all come out as they were, with 2 when one does not.
    \b
    Examples:
      af replay exec_01JD3ZJ4W3E5V8Q2N7M0K1T9XA
      af replay exec_01JD3ZJ4W3E5V8Q2N7M0K1T9XA --against 1.1.0
      af replay snap_01JD3ZJ4W3E5V8Q2N7M0K1T9XA
      af replay --workflow support --last 20 --file workflow.yaml
    """
    if (execution is None) == (workflow is None):
        raise UnusableInput("which executions is not clear", "Name one, or give --workflow NAME.")
    if against is not None and file is not None:
        raise UnusableInput("--against and --file both say what decides", "Give one of them.")
    definition = None if file is None else definition_text(file).decode("utf-8", errors="replace")
    asyncio.run(_replay(execution, workflow, last, against, definition, json))


async def _replay(
    execution: str | None, workflow: str | None, last: int, against: str | None, definition: str | None, json: bool
) -> None:
    import msgspec

    from agentflow.cli.connection import control_plane
    from agentflow.sdk.models import Replays

    by = "" if against is None and definition is None else " by the other version"
    async with control_plane() as api:
        if execution is not None:
            one = await api.records.replay(execution, against=against, definition=definition)
            if json:
                print_json(one)
            else:
                show_replay(one)
            if not one.identical:
                raise Diverged(1, 1, by)
            return
        assert workflow is not None
        job = await api.records.replay_many(workflow, last=last, against=against, definition=definition)
        found = msgspec.convert(await watched_job(api, job, quiet=json), Replays)
    if json:
        print_json(found)
    else:
        show_replays(found)
    if found.diverged:
        raise Diverged(found.diverged, found.replayed, by)


async def watched_job(api: "Client", job: "Job", *, quiet: bool) -> object:
    """What a job that replays many came to, saying on the way how far it is."""
    from agentflow.sdk.records import JobFailed

    console = stderr()
    async for seen in api.records.follow_job(job.id):
        if seen.status == "failed":
            raise JobFailed(seen)
        if not quiet and console.is_terminal and seen.total:
            console.print(f"\rreplayed {seen.done} of {seen.total}", end="")
        job = seen
    if not quiet and console.is_terminal:
        console.print("\r", end="")
    return job.result


def show_replays(found: "Replays") -> None:
    for one in found.items:
        if not one.identical:
            show_replay(one)
    stdout().print(f"{found.replayed} replayed: {found.identical} came out as they were, {found.diverged} did not.")


def show_replay(one: "Replay") -> None:
    say = stdout().print
    by = one.workflow if one.against is None else f"{one.against} (it was {one.workflow})"
    if one.divergence is None:
        say(f"✓ {one.execution_id}  {one.events} events, decided again by {by}, are the same")
        say(f"  digest {one.digest}", style="dim")
        return
    off = one.divergence
    say(f"✗ {one.execution_id}  decided by {by}, it leaves the record at version {off.version}{_at(off)}")
    say(f"  recorded  {off.expected or 'nothing more'}{_values(off.expected_data, off.fields)}")
    say(f"  decided   {off.got or 'nothing'}{_values(off.got_data, off.fields)}")
    if off.reason:
        say(f"  {off.reason}")


def _at(off: "Divergence") -> str:
    return f", `{off.path}`" if off.path else ""


def _values(data: dict[str, object] | None, fields: Sequence[str]) -> str:
    if data is None:
        return f"  (differs in {', '.join(fields)})" if fields else ""
    shown = {name: data.get(name) for name in fields} if fields else data
    text = ", ".join(f"{name} = {jsonlib.dumps(value, ensure_ascii=False)}" for name, value in shown.items())
    return f"  {text if len(text) <= _SHOWN_CHARS_MAX else text[:_SHOWN_CHARS_MAX] + '…'}"
