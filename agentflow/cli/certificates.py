"""`af certs`: an authority and certificates of your own, for TLS in development and in closed networks."""

import os
from pathlib import Path
from typing import Annotated

import typer

from agentflow.cli.output import stdout

app = typer.Typer(no_args_is_help=True, help="Certificates of your own, for TLS between parts.")

_PARTS = ("control-plane", "worker", "client", "nats", "postgres")


@app.command()
def init(
    directory: Annotated[Path, typer.Argument(help="Where to write them.")] = Path(".agentflow/certs"),
    host: Annotated[
        list[str] | None,
        typer.Option("--host", help="A name or address parts are reached at; may be repeated.", show_default=False),
    ] = None,
    days: Annotated[int, typer.Option(help="How long they are valid.", min=1, max=825)] = 90,
) -> None:
    """Make an authority, and a certificate for each part: control plane, workers, clients, NATS and PostgreSQL.

    The authority's own key is not kept: make all of them anew instead of adding to them.
    Keys are readable by their owner only.

    \b
    Examples:
      af certs init
      af certs init certs --host agentflow.internal --host 10.0.0.7
    """
    from agentflow.clock import SystemClock
    from agentflow.encryption.certificates import Authority

    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    authority = Authority(SystemClock().now_ms())
    _write(directory / "ca.pem", authority.certificate_pem, 0o644)
    for part in _PARTS:
        pair = authority.issue(part, [*(host or ()), "localhost", "127.0.0.1", "::1"], days=days)
        _write(directory / f"{part}.pem", pair.certificate_pem, 0o644)
        _write(directory / f"{part}.key", pair.key_pem, 0o600)
    stdout().print(f"wrote an authority and {len(_PARTS)} certificates to {directory}, valid for {days} days")


def _write(file: Path, content: bytes, mode: int) -> None:
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode), "wb") as writing:
        writing.write(content)
