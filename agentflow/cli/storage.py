"""`af storage`, `af retention` and `af keys`: how much is stored, what goes when, and under which keys it lies.

The control plane's own code does it, in a process of its own: the CLI belongs to the kernel, which does not import it.
"""

import secrets
from typing import Annotated, Any

import typer

from agentflow.cli.output import JsonFlag, print_json, print_table, stdout
from agentflow.cli.services import ask_control_plane

storage = typer.Typer(no_args_is_help=True, help="See how much is stored.")
retention = typer.Typer(no_args_is_help=True, help="See and do what the purge removes.")
keys = typer.Typer(no_args_is_help=True, help="Make encryption keys, and move what is stored to the newest.")


@storage.callback()
def _storage() -> None:
    """Keeps `report` a command of its own."""


@storage.command()
def report(json: JsonFlag = False) -> None:
    """Show what is stored for each tenant, workflow and kind, and what the disk holds.

    \b
    Examples:
      af storage report
      af storage report --json
    """
    answer = ask_control_plane("upkeep", "storage-report")
    if json:
        print_json(answer)
        return
    rows = [
        [use["tenant"], use["workflow"] or "-", use["kind"], _size(use["bytes"]), str(use["items"])]
        for use in answer["uses"]
    ]
    print_table(["tenant", "workflow", "kind", "bytes", "items"], rows)
    stdout().print(f"On disk: database {_size(answer['database_bytes'])}, artifacts {_size(answer['artifact_bytes'])}.")


@retention.command()
def plan(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="A plan removes nothing; said for those who ask.")] = True,
    json: JsonFlag = False,
) -> None:
    """List exactly what the next run removes. Removes nothing.

    \b
    Examples:
      af retention plan --dry-run
      AF_RETENTION=history=7d,acme/history=never af retention plan --json
    """
    _show_removals(
        ask_control_plane("upkeep", "retention-plan"), json, "would be removed" if dry_run else "would be removed now"
    )


@retention.command()
def run(json: JsonFlag = False) -> None:
    """Remove now what `af retention plan` lists. Control planes do it once a day by themselves.

    \b
    Examples:
      af retention run
      af retention run --json
    """
    _show_removals(ask_control_plane("upkeep", "retention-run"), json, "removed")


@keys.command()
def new(
    key_id: Annotated[str, typer.Argument(help="The id it is stored under, such as k1 or 2026-11.")] = "k1",
) -> None:
    """Make an encryption key and print it once, as AF_ENCRYPTION_KEYS takes it. Keep it where backups are not.

    \b
    Examples:
      af keys new 2026-11
      AF_ENCRYPTION_KEYS=$(af keys new k1) af server
    """
    from agentflow.encryption.keyring import KEY_BYTES, parse_keys, written_key

    written = written_key(key_id, secrets.token_bytes(KEY_BYTES))
    parse_keys(written)  # the id may not be usable
    stdout().print(written, soft_wrap=True)


@keys.command()
def rekey(json: JsonFlag = False) -> None:
    """Encrypt anew, under the first of AF_ENCRYPTION_KEYS, whatever lies under another key or under none.

    Everybody may go on working. If it is killed, run it again; once it finds nothing, the older keys can be taken out.

    \b
    Examples:
      AF_ENCRYPTION_KEYS=k2:…,k1:… af keys rekey
      AF_ENCRYPTION_KEYS=k2:…,k1:… af db rekey
      af keys rekey --json
    """
    answer = ask_control_plane("upkeep", "rekey")
    if json:
        print_json(answer)
    else:
        moved = f"{answer['events']} events, {answer['snapshots']} snapshots and {answer['artifacts']} artifacts"
        stdout().print(f"Moved {moved} to the key {answer['key']}.")


def _show_removals(answer: dict[str, Any], json: bool, what: str) -> None:
    if json:
        print_json(answer)
        return
    rows = [[removal["tenant"], removal["kind"], str(removal["items"])] for removal in answer["removals"]]
    if answer["orphans"]:
        rows.append(["-", "artifacts of nobody", str(len(answer["orphans"]))])
    if rows:
        print_table(["tenant", "kind", what], rows)
    else:
        stdout().print(f"Nothing {what}.")


def _size(count: int) -> str:
    for unit, power in (("GB", 9), ("MB", 6), ("KB", 3)):
        if count >= 10**power:
            return f"{count / 10**power:.1f} {unit}"
    return f"{count} B"
