"""`af executions explain|trace|ticks|break`: why an execution is where it is, and stopping it to look around."""

import asyncio
import json as jsonlib
from typing import TYPE_CHECKING, Annotated

import typer

from agentflow.cli.orders import ExecutionArgument, app, ask
from agentflow.cli.output import JsonFlag, print_json, stdout

if TYPE_CHECKING:
    from agentflow.sdk.models import Span

__all__ = ["app"]  # the commands of `af executions`, with these added

_SHOWN_CHARS_MAX = 120


@app.command()
def explain(
    execution: ExecutionArgument,
    after: Annotated[int, typer.Option("--after", help="Only what came after this version.")] = 0,
    json: JsonFlag = False,
) -> None:
    """Show every expression that an execution evaluated, the values it read and what came out.

    \b
    Examples:
      af executions explain exec_01JD3ZJ4W3E5V8Q2N7M0K1T9XA
    """

    async def run() -> None:
        from agentflow.cli.connection import control_plane

        async with control_plane() as api:
            found = await api.evaluations(execution, after=after)
        if json:
            print_json(found)
            return
        for it in found.items:
            ended = f"failed: {it.error.message}" if it.error is not None else _shown(it.result)
            _say(f"{it.version:>6}  {it.expression}  ->  {ended}")
            if it.values:
                _say("        " + ", ".join(f"{name} = {_shown(value)}" for name, value in it.values.items()))

    asyncio.run(run())


@app.command()
def trace(execution: ExecutionArgument, json: JsonFlag = False) -> None:
    """Show where the time of an execution went: its steps, attempts, waits, tool calls and children.

    \b
    Examples:
      af executions trace exec_01JD3ZJ4W3E5V8Q2N7M0K1T9XA
    """

    async def run() -> None:
        from agentflow.cli.connection import control_plane

        async with control_plane() as api:
            found = await api.records.trace((await api.execution(execution)).trace_id)
        if json:
            print_json(found)
            return
        _say(f"trace {found.trace_id}")
        below: dict[str | None, list[Span]] = {}
        known = {span.span_id for span in found.items}
        for span in found.items:
            parent = span.parent_span_id if span.parent_span_id in known else None
            below.setdefault(parent, []).append(span)
        rest = [(0, span) for span in reversed(below.get(None, []))]
        while rest:
            depth, span = rest.pop()
            mark = {"ok": "✓", "error": "✗"}.get(span.status, "·")
            took = "under way" if span.duration_ms is None else f"{span.duration_ms} ms"
            _say(f"{'  ' * depth}{mark} {span.kind} {span.name}  {took}")
            rest += [(depth + 1, child) for child in reversed(below.get(span.span_id, []))]

    asyncio.run(run())


@app.command()
def ticks(
    execution: ExecutionArgument,
    at: Annotated[int | None, typer.Option("--at", help="All of the tree as it stood at this version.")] = None,
    json: JsonFlag = False,
) -> None:
    """Show what each tick of a behaviour tree changed, or how all of it stood after one.

    \b
    Examples:
      af executions ticks exec_01JD3ZJ4W3E5V8Q2N7M0K1T9XA
      af executions ticks exec_01JD3ZJ4W3E5V8Q2N7M0K1T9XA --at 12
    """

    async def run() -> None:
        from agentflow.cli.connection import control_plane

        async with control_plane() as api:
            found = [await api.tick(execution, at)] if at is not None else (await api.ticks(execution)).items
        if json:
            print_json(found)
            return
        for it in found:
            _say(f"{it.version:>6}  {it.at}")
            for path, status in it.nodes.items():
                _say(f"        {path}  {status}")
            for name, value in it.vars.items():
                _say(f"        vars.{name} = {_shown(value)}")

    asyncio.run(run())


@app.command("break")
def set_breakpoints(
    execution: ExecutionArgument,
    at: Annotated[
        list[str] | None, typer.Argument(help="States, or paths of nodes (tree/0/fix). None: stop nowhere.")
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Pause an execution before anything at these places begins; `resume` goes on to the next.

    \b
    Examples:
      af executions break exec_01JD3ZJ4W3E5V8Q2N7M0K1T9XA tree/0/fix
      af executions break exec_01JD3ZJ4W3E5V8Q2N7M0K1T9XA
    """
    ask(json, lambda api: api.set_breakpoints(execution, at or []))


def _say(line: str) -> None:
    stdout().print(line, highlight=False, markup=False)


def _shown(value: object) -> str:
    text = jsonlib.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHOWN_CHARS_MAX else f"{text[:_SHOWN_CHARS_MAX]}…"
