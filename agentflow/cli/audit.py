"""`af audit`: who did what; and whether the record of it is still whole, without asking anybody."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentflow.cli.output import JsonFlag, print_json, print_table, stdout
from agentflow.errors import Invalid, Problem, Rejected

if TYPE_CHECKING:
    from agentflow.contracts.audit import Checkpoint, Link

app = typer.Typer(no_args_is_help=True, help="See who did what, and prove that nobody changed the record of it.")

_SHOWN_MAX = 20  # faults; one change breaks every link behind it only if all of them were made anew

_CHECKPOINT = b'{"checkpoint"'  # how the last line of an export begins


class AuditBroken(Rejected):
    code = "AF1801"

    def __init__(self, file: str, faults: list[str]) -> None:
        super().__init__(
            f"{file} is not the audit trail that was recorded: {'; '.join(faults[:_SHOWN_MAX])}.",
            hint="Export it again and compare; if it stays so, the database was changed: restore it from a backup.",
        )


class NotAnExport(Invalid):
    code = "AF1802"

    def __init__(self, file: str, line: int, reason: str) -> None:
        super().__init__(
            f"{file} is not an export of the audit trail.",
            hint="Make one with `af audit export FILE`.",
            problems=[Problem(reason, path=f"line {line}")],
        )


@app.command("list")
def list_records(
    actor: Annotated[str | None, typer.Option(help="Who: an id.", show_default=False)] = None,
    action: Annotated[str | None, typer.Option(help="What, such as executions.cancel.", show_default=False)] = None,
    resource: Annotated[str | None, typer.Option(help="To what: an id or a name.", show_default=False)] = None,
    outcome: Annotated[
        str | None, typer.Option(help="done, failed, denied, allowed, closed.", show_default=False)
    ] = None,
    since: Annotated[str | None, typer.Option(help="From this moment on, RFC 3339.", show_default=False)] = None,
    until: Annotated[str | None, typer.Option(help="Before this moment, RFC 3339.", show_default=False)] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="At most this many.", show_default=False)] = None,
    json: JsonFlag = False,
) -> None:
    """List who did what, the newest first.

    \b
    Examples:
      af audit list --action workflows.execute --since 2026-11-18T00:00:00Z
      af audit list --outcome denied --json
    """
    wanted = {
        "actor": actor, "action": action, "resource": resource, "outcome": outcome, "since": since, "until": until,
    }  # fmt: skip
    asyncio.run(_list(wanted, limit, json))


async def _list(wanted: dict[str, str | None], limit: int | None, json: bool) -> None:
    from agentflow.cli.connection import control_plane

    async with control_plane() as api:
        found = await api.audit.list(wanted, limit=limit)
    if json:
        print_json(found)
        return
    rows = [_row(link) for link in found.items]
    print_table(("no", "at", "actor", "action", "outcome", "what"), rows)
    stdout().print(f"{found.total_count} in all.", style="dim")


def _row(link: "Link") -> tuple[str, ...]:
    record = link.record
    what = f"{record['resource']['type']} {record['resource']['id']}"
    return str(link.seq), record["at"], record["actor"]["id"], record["action"], record["outcome"], what


@app.command()
def export(
    file: Annotated[Path, typer.Argument(help="Where to; one JSON document a line.", dir_okay=False)],
) -> None:
    """Write the whole chain to a file, with a signed checkpoint of its end.

    \b
    Examples:
      af audit export audit.jsonl && af audit verify audit.jsonl
    """
    written = asyncio.run(_export(file))
    stdout().print(f"{written} records in {file}. Check it anywhere with `af audit verify {file}`.")


async def _export(file: Path) -> int:
    import msgspec

    from agentflow.cli.connection import control_plane

    written = 0
    async with control_plane() as api:
        checkpoint = await api.audit.checkpoint()
        with file.open("wb") as out:
            async for link in api.audit.iterate():
                if link.seq > checkpoint.size:
                    break  # came while we read
                out.write(msgspec.json.encode(link) + b"\n")
                written += 1
            out.write(msgspec.json.encode({"checkpoint": checkpoint}) + b"\n")
    return written


@app.command()
def checkpoint(
    file: Annotated[Path | None, typer.Argument(help="Where to; to the screen otherwise.", show_default=False)] = None,
) -> None:
    """Get a signed statement of how long the chain is now. Keep it where nobody can change it.

    \b
    Examples:
      af audit checkpoint /mnt/elsewhere/audit-2026-11-18.json
    """
    import msgspec

    found = asyncio.run(_checkpoint())
    if file is None:
        print_json(found)
    else:
        file.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n")
        stdout().print(f"{found.size} records, in {file}.")


async def _checkpoint() -> "Checkpoint":
    from agentflow.cli.connection import control_plane

    async with control_plane() as api:
        return await api.audit.checkpoint()


@app.command()
def verify(
    file: Annotated[Path, typer.Argument(help="What `af audit export` wrote.", exists=True, dir_okay=False)],
    checkpoints: Annotated[
        list[Path] | None,
        typer.Option("--checkpoint", help="One kept from earlier; again for more.", show_default=False),
    ] = None,
    keys: Annotated[
        Path | None,
        typer.Option(help="Keys you trust: what /.well-known/jwks.json gave, kept.", show_default=False),
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Prove, without a server, that an export is whole: nothing changed, removed, moved, put in or cut off.

    Whether its end was cut off, or all of it made anew, shows against checkpoints you kept (their key is trusted then),
    or against keys you trust; with neither, only against the signature that the export itself carries.

    \b
    Examples:
      af audit verify audit.jsonl
      af audit verify audit.jsonl --checkpoint /mnt/elsewhere/audit-2026-11-18.json
    """
    from agentflow.contracts.audit import chain_faults

    kept = [_read_checkpoint(each) for each in checkpoints or ()]
    trusted = [each.key["x"] for each in kept] + _trusted(keys)
    own, count = _checkpoints_in(file)
    faults = [f"record {fault.seq}: {fault.reason}" for fault in chain_faults(_links(file), [*kept, *own])]
    faults += _signature_faults(own, kept, trusted)
    if json:
        print_json({"file": str(file), "records": count, "whole": not faults, "faults": faults})
    if faults:
        raise AuditBroken(str(file), faults)
    if not json:
        stdout().print(f"{count} records, whole; signed at {own[0].at}.")
        if not trusted:
            stdout().print(
                f"Signed by the key {own[0].key['x']}, which the export brought itself: compare it with one you kept.",
                style="dim",
            )


def _signature_faults(own: "list[Checkpoint]", kept: "list[Checkpoint]", trusted: list[str]) -> "Iterator[str]":
    from agentflow.contracts.audit import checkpoint_text
    from agentflow.encryption.signing import is_signed

    if not own:
        yield "it has no checkpoint, so nobody can tell whether its end is missing"
    for each in [*kept, *own]:
        text = checkpoint_text(tenant=each.tenant, size=each.size, head=each.head, at=each.at)
        if not is_signed(each.key, text, each.signature):
            yield f"the signature of the checkpoint of {each.at} is wrong"
        elif trusted and each.key.get("x") not in trusted:
            yield f"the checkpoint of {each.at} is signed by a key that you do not trust ({each.key.get('x')})"


def _links(file: Path) -> "Iterator[Link]":
    from agentflow.contracts.audit import Link

    for number, line in _lines(file):
        if not line.startswith(_CHECKPOINT):
            yield _decoded(file, number, line, Link)


def _checkpoints_in(file: Path) -> "tuple[list[Checkpoint], int]":
    """They stand at the end, and are needed first. How many records there are is counted on the way."""
    from agentflow.contracts.audit import Checkpoint

    found, records = [], 0
    for number, line in _lines(file):
        if line.startswith(_CHECKPOINT):
            found.append(_decoded(file, number, line, dict[str, Checkpoint])["checkpoint"])
        else:
            records += 1
    return found, records


def _lines(file: Path) -> Iterator[tuple[int, bytes]]:
    with file.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                yield number, line


def _decoded(file: Path, number: int, line: bytes, shape: Any) -> Any:
    import msgspec

    try:
        return msgspec.json.decode(line, type=shape)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise NotAnExport(str(file), number, str(error)) from None


def _read_checkpoint(file: Path) -> "Checkpoint":
    from agentflow.contracts.audit import Checkpoint

    found: Checkpoint = _decoded(file, 1, file.read_bytes(), Checkpoint)
    return found


def _trusted(keys: Path | None) -> list[str]:
    if keys is None:
        return []
    found: dict[str, list[dict[str, str]]] = _decoded(keys, 1, keys.read_bytes(), dict[str, list[dict[str, str]]])
    return [key.get("x", "") for key in found.get("keys", [])]
