"""`af deploy`: register a version once it has been tried on what its workflow did before."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from agentflow.cli.definitions import definition_text
from agentflow.cli.output import JsonFlag, print_json, stdout
from agentflow.cli.replay import Diverged, show_replays, watched_job
from agentflow.errors import Invalid


def deploy(
    file: Annotated[Path, typer.Argument(help="A workflow, as YAML or JSON.", show_default=False)],
    accept_divergence: Annotated[
        str | None,
        typer.Option(
            "--accept-divergence",
            help="Register it although executions would have gone another way. Say why; it is kept with the version.",
            show_default=False,
        ),
    ] = None,
    last: Annotated[int, typer.Option("--last", min=0, help="On how many of the last executions to try it.")] = 50,
    json: JsonFlag = False,
) -> None:
    """Register a workflow once its last executions, decided again by it, come out as they did.

    \b
    Exits with 2, and registers nothing, when one of them would have gone another way.
    \b
    Examples:
      af deploy workflow.yaml
      af deploy workflow.yaml --accept-divergence "shorter time-outs, as agreed in OPS-12"
    """
    asyncio.run(_deploy(file, accept_divergence, last, json))


async def _deploy(file: Path, accept_divergence: str | None, last: int, json: bool) -> None:
    import msgspec

    from agentflow.cli.connection import control_plane
    from agentflow.sdk.models import Deployed

    text = definition_text(file).decode("utf-8", errors="replace")
    async with control_plane() as api:
        try:
            job = await api.records.deploy(text, accept_divergence=accept_divergence, last=last)
        except Invalid as error:
            error.message = f"{file}: {error.message}"
            raise
        done = msgspec.convert(await watched_job(api, job, quiet=json), Deployed)
    if json:
        print_json(done)
    elif done.replays.replayed:
        show_replays(done.replays)
    if done.workflow is None:
        raise Diverged(done.replays.diverged, done.replays.replayed, " by this version, so it was not registered")
    if not json:
        state = "registered" if done.created else "unchanged"
        stdout().print(f"{state} {done.workflow.name} {done.workflow.version}  {done.workflow.id}")
