"""What commands print: results to stdout, everything about how it goes to stderr, colour only on a terminal."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]

_GAP = "  "


def stdout() -> "Console":
    return _console(stderr=False)


def stderr() -> "Console":
    return _console(stderr=True)


def _console(*, stderr: bool) -> "Console":
    from rich.console import Console

    # What we print holds brackets and numbers of other people: no markup, no guessing at highlights, no re-wrapping.
    return Console(stderr=stderr, markup=False, highlight=False, emoji=False, soft_wrap=True)


def print_json(value: Any) -> None:
    """Structs or plain values, for programs: never coloured, one value."""
    import msgspec

    sys.stdout.write(msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n")


def print_value(value: Any) -> None:
    """A JSON value for people: indented, coloured on a terminal."""
    import msgspec

    stdout().print_json(msgspec.json.encode(value).decode(), ensure_ascii=False)


def print_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Columns as wide as their widest cell, also through a pipe: ids must never be cut."""
    widths = [max(len(cell) for cell in column) for column in zip(headings, *rows, strict=True)]
    console = stdout()
    console.print(_row(headings, widths), style="bold")
    for row in rows:
        console.print(_row(row, widths))


def _row(cells: Sequence[str], widths: Sequence[int]) -> str:
    return _GAP.join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()
