"""`af db`: the schema of the database, and what follows from the events.

The control plane's own code does it, in a process of its own: the CLI belongs to the kernel, which does not import it.
"""

from typing import Annotated, Any

import typer

from agentflow.cli.output import JsonFlag, print_json, stdout
from agentflow.cli.services import ask_control_plane

app = typer.Typer(no_args_is_help=True, help="Look after the database that AF_DB_DSN names.")


@app.command()
def current(json: JsonFlag = False) -> None:
    """Show at which revision the schema is, and the newest that this release knows.

    \b
    Examples:
      af db current
      af db current --json
    """
    answer = ask_control_plane("db", "current")
    _told(answer, json, f"{_capital(answer['database'])} is at {answer['current']}; the newest is {answer['newest']}.")


@app.command()
def upgrade(json: JsonFlag = False) -> None:
    """Bring the schema to the newest revision. `af server` does the same when it starts; several at once do it once.

    \b
    Examples:
      af db upgrade
      AF_DB_DSN=postgres://af:secret@db/af af db upgrade --json
    """
    answer = ask_control_plane("db", "upgrade")
    same = answer["from"] == answer["to"]
    _told(answer, json, f"Already at {answer['to']}." if same else f"Upgraded from {answer['from']} to {answer['to']}.")


@app.command()
def downgrade(
    to: Annotated[str, typer.Argument(help="The revision to go down to; `none` removes every table.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask: what newer revisions stored is lost.")] = False,
    json: JsonFlag = False,
) -> None:
    """Take the schema back to an older revision. What newer ones added is gone, with what was stored in it.

    \b
    Examples:
      af db downgrade 0003
      af db downgrade 0003 --yes --json
    """
    if not yes:
        typer.confirm(f"Go down to {to}? What newer revisions stored is lost", abort=True, err=True)
    answer = ask_control_plane("db", "downgrade", to)
    _told(answer, json, f"Went down from {answer['from']} to {answer['to']}.")


@app.command()
def check(json: JsonFlag = False) -> None:
    """Compare the tables with what this release expects. Exits with 2 if they differ.

    \b
    Examples:
      af db check
      af db check && af server
    """
    answer = ask_control_plane("db", "check")
    _told(answer, json, f"{_capital(answer['database'])} is as it should be, at {answer['current']}.")


@app.command()
def rebuild(json: JsonFlag = False) -> None:
    """Make the lists of executions and tasks and the plans anew from the events. Control planes may go on meanwhile.

    \b
    Examples:
      af db rebuild
      af db rebuild --json
    """
    answer = ask_control_plane("db", "rebuild")
    _told(answer, json, f"Read {answer['events']} events of {answer['executions']} executions.")


def _told(answer: dict[str, Any], json: bool, sentence: str) -> None:
    if json:
        print_json(answer)
    else:
        stdout().print(sentence)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
