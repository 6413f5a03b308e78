"""`af bus users`: the users of a NATS server of your own, each with what it may do and no more."""

import secrets
import sys
from pathlib import Path
from typing import Annotated

import typer

from agentflow.cli.output import stderr

app = typer.Typer(no_args_is_help=True, help="The bus between control planes and workers.")


@app.command()
def users(
    file: Annotated[Path, typer.Argument(help="Where to write the configuration.", show_default=False)],
    worker: Annotated[
        list[str],
        typer.Option(
            "--worker",
            help="NAME[@TENANT]=agent,agent: a worker, its tenant (`*`: shared), the agents it hosts.",
            show_default=False,
        ),
    ],
) -> None:
    """Write the users of a NATS server: one for control planes, one for each worker, limited to its own.

    The file is for `nats-server -c` (or an `include` in yours), readable by its owner only.
    What each process needs as AF_NATS_URL is printed, with HOST in the place of the server.

    \b
    Examples:
      af bus users users.conf --worker tickets=classifier,responder --worker tools=tools
      af bus users users.conf --worker crm@acme=crm --worker tools@*=tools
    """
    import os

    from agentflow.bus.permissions import control_plane_user, server_configuration, worker_user
    from agentflow.contracts.pools import ANY, SHARED
    from agentflow.ids import DEFAULT_TENANT

    made = [control_plane_user(secrets.token_urlsafe())]
    for entry in worker:
        who, _, agents = entry.partition("=")
        name, _, tenant = who.partition("@")
        if not agents:
            raise typer.BadParameter(f"{entry!r} is not NAME[@TENANT]=agent,agent", param_hint="--worker")
        pool = SHARED if tenant == ANY else tenant or DEFAULT_TENANT
        made.append(worker_user(name, secrets.token_urlsafe(), pool, agents.split(",")))
    text = server_configuration(made)
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "w") as writing:
        writing.write(text)
    stderr().print(f"wrote {file}; these are not shown again", style="dim")
    for user in made:
        sys.stdout.write(f"{user.name}\tnats://{user.name}:{user.password}@HOST:4222\n")
