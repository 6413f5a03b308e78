"""`af migrate`: let an execution go on by another version of its workflow, or see what is in the way."""

import asyncio
import json as jsonlib
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentflow.cli.inputs import UnusableInput
from agentflow.cli.output import JsonFlag, print_json, stdout
from agentflow.errors import Rejected

if TYPE_CHECKING:
    from agentflow.sdk.models import MoveVerdict


class NotCompatible(Rejected):
    code = "AF1528"

    def __init__(self, verdict: "MoveVerdict") -> None:
        mapping = verdict.verdict == "needs_mapping"
        super().__init__(
            f"Execution {verdict.execution_id} {'needs a mapping' if mapping else 'cannot be moved'} to go on "
            f"by version {verdict.to}.",
            hint="Say which variable has another name now with --map NEW=OLD, or give it a value with --set NAME=VALUE."
            if mapping
            else "Let it come past the places that are named, or end as it began.",
        )


def migrate(
    run: Annotated[str, typer.Option("--run", help="An execution's id.", show_default=False)],
    to: Annotated[str, typer.Option("--to", help="A version of its workflow.", show_default=False)],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be met.")] = False,
    mapped: Annotated[
        list[str] | None, typer.Option("--map", help="A variable's new name and its old one: NEW=OLD.")
    ] = None,
    given: Annotated[list[str] | None, typer.Option("--set", help="A variable's value, as JSON: NAME=VALUE.")] = None,
    reason: Annotated[str, typer.Option("--reason", help="Why; kept with the event.", show_default=False)] = "",
    json: JsonFlag = False,
) -> None:
    """Move an execution to another version of its workflow. One that does not fit is left as it is.

    \b
    With --dry-run it says compatible, needs_mapping or refused, with every node and key in the way; exits with 0 only
    when it is compatible.
    \b
    Examples:
      af migrate --run exec_01JD3ZJ4W3E5V8Q2N7M0K1T9XA --to 1.1.0 --dry-run
      af migrate --run exec_01JD3ZJ4W3E5V8Q2N7M0K1T9XA --to 2.0.0 --map shade=colour --set size=3
    """
    rename = dict(_pair(text, "--map") for text in mapped or ())
    values = {name: _value(text) for name, text in (_pair(text, "--set") for text in given or ())}
    asyncio.run(_migrate(run, to, rename, values, reason, dry_run, json))


async def _migrate(
    execution: str, to: str, rename: dict[str, str], values: dict[str, Any], reason: str, dry_run: bool, json: bool
) -> None:
    from agentflow.cli.connection import control_plane

    async with control_plane() as api:
        verdict = await api.check_move(execution, to, rename=rename, vars=values)
        if not dry_run and verdict.verdict == "compatible":
            moved = await api.move(execution, to, rename=rename, vars=values, reason=reason)
            if json:
                print_json(moved)
            else:
                stdout().print(f"{moved.id} goes on by {moved.workflow.name} {moved.workflow.version}.")
            return
    if json:
        print_json(verdict)
    else:
        _show(verdict)
    if verdict.verdict != "compatible":
        raise NotCompatible(verdict)


def _show(verdict: "MoveVerdict") -> None:
    say = stdout().print
    say(f"{verdict.verdict}: {verdict.execution_id} to version {verdict.to}")
    for misfit in verdict.misfits:
        place = f"node `{misfit.node}`" if misfit.node else f"key `{misfit.key}`" if misfit.key else "execution"
        say(f"  {place}: {misfit.reason}")
    for name, value in verdict.vars.items() if not verdict.misfits else ():
        say(f"  sets vars.{name} = {jsonlib.dumps(value, ensure_ascii=False)}")


def _pair(text: str, option: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise UnusableInput(f"{option} {text!r} is no pair", f"Write {option} NAME=VALUE.")
    return name, value


def _value(text: str) -> Any:
    """As JSON, and what is no JSON as text."""
    try:
        return jsonlib.loads(text)
    except ValueError:
        return text
