"""`af executions pause|resume|cancel|terminate|signal|vars|retry`: what may be asked of an execution under way."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated

import typer

from agentflow.cli.executions import app
from agentflow.cli.inputs import UnusableInput, execution_input
from agentflow.cli.output import JsonFlag, print_json, stdout

if TYPE_CHECKING:
    from agentflow.sdk.client import Client
    from agentflow.sdk.models import Execution, PlatformAsked

__all__ = ["app"]  # the commands of `af executions`, with these added

ExecutionArgument = Annotated[str, typer.Argument(help="An execution's id.", show_default=False)]
ReasonOption = Annotated[str, typer.Option("--reason", help="Why; kept with the event.", show_default=False)]


OneOrNone = Annotated[str | None, typer.Argument(help="An execution's id.", show_default=False)]
WorkflowOption = Annotated[
    str | None, typer.Option("--workflow", help="All executions of this workflow.", show_default=False)
]
EverythingOption = Annotated[bool, typer.Option("--all", help="All executions of the tenant.")]
EverywhereOption = Annotated[
    bool, typer.Option("--everywhere", help="All executions of all tenants, for who runs the deployment.")
]


def _ensure_one_way(execution: str | None, workflow: str | None, *wide: bool) -> None:
    if [execution is not None, workflow is not None, *wide].count(True) != 1:
        raise UnusableInput(
            "which executions is not clear", "Name one, or give one of --workflow NAME, --all and --everywhere."
        )


def _ask_all(json: bool, what: str, ask: "Callable[[Client], Awaitable[int]]") -> None:
    async def run() -> int:
        from agentflow.cli.connection import control_plane

        async with control_plane() as api:
            return await ask(api)

    count = asyncio.run(run())
    if json:
        print_json({what: count})
    else:
        stdout().print(f"{count} {what}.")


def _ask_platform(json: bool, what: str, ask: "Callable[[Client], Awaitable[PlatformAsked]]") -> None:
    async def run() -> "PlatformAsked":
        from agentflow.cli.connection import control_plane

        async with control_plane() as api:
            return await ask(api)

    asked = asyncio.run(run())
    if json:
        print_json({what: asked.executions, "tenants": asked.tenants})
    else:
        tenants = "1 tenant" if asked.tenants == 1 else f"{asked.tenants} tenants"
        stdout().print(f"{asked.executions} {what}, of {tenants}.")


def ask(json: bool, ask: "Callable[[Client], Awaitable[Execution]]") -> None:
    async def run() -> None:
        from agentflow.cli.connection import control_plane

        async with control_plane() as api:
            state = await ask(api)
        if json:
            print_json(state)
        else:
            stdout().print(f"{state.id} is {state.status}.")

    asyncio.run(run())


@app.command()
def pause(
    execution: OneOrNone = None,
    workflow: WorkflowOption = None,
    everything: EverythingOption = False,
    everywhere: EverywhereOption = False,
    reason: ReasonOption = "",
    json: JsonFlag = False,
) -> None:
    """Begin nothing new in an execution, in all of a workflow, of the tenant, or of the whole deployment.

    Steps that run may end, and their results are kept.

    \b
    Examples:
      af executions pause exec_01JD3ZJ4W3E5V8Q2N7M0K1T9XA --reason "supplier is down"
      af executions pause --workflow support
      af executions pause --all --reason "maintenance"
      af executions pause --everywhere --reason "the model provider is down"
    """
    _ensure_one_way(execution, workflow, everything, everywhere)
    if execution is not None:
        ask(json, lambda api: api.pause(execution, reason=reason))
    elif everywhere:
        _ask_platform(json, "paused", lambda api: api.pause_everywhere(reason=reason))
    else:
        _ask_all(json, "paused", lambda api: api.pause_all(workflow=workflow, reason=reason))


@app.command()
def resume(
    execution: OneOrNone = None,
    workflow: WorkflowOption = None,
    everything: EverythingOption = False,
    everywhere: EverywhereOption = False,
    json: JsonFlag = False,
) -> None:
    """Let a paused execution go on, or all paused ones of a workflow or of the tenant.

    With --everywhere, all that `pause --everywhere` has paused: what a tenant has paused itself stays so.

    \b
    Examples:
      af executions resume exec_01JD3ZJ4W3E5V8Q2N7M0K1T9XA
      af executions resume --all
      af executions resume --everywhere
    """
    _ensure_one_way(execution, workflow, everything, everywhere)
    if execution is not None:
        ask(json, lambda api: api.resume(execution))
    elif everywhere:
        _ask_platform(json, "resumed", lambda api: api.resume_everywhere())
    else:
        _ask_all(json, "resumed", lambda api: api.resume_all(workflow=workflow))


@app.command()
def cancel(execution: ExecutionArgument, reason: ReasonOption = "", json: JsonFlag = False) -> None:
    """Stop an execution in order: halt what runs, run the compensations its workflow declares, then end.

    \b
    Examples:
      af executions cancel exec_01JD3ZJ4W3E5V8Q2N7M0K1T9XA
    """
    ask(json, lambda api: api.cancel(execution, reason=reason))


@app.command()
def terminate(execution: ExecutionArgument, reason: ReasonOption = "", json: JsonFlag = False) -> None:
    """Stop an execution now, without undoing anything.

    \b
    Examples:
      af executions terminate exec_01JD3ZJ4W3E5V8Q2N7M0K1T9XA
    """
    ask(json, lambda api: api.terminate(execution, reason=reason))


@app.command()
def signal(
    execution: ExecutionArgument,
    name: Annotated[str, typer.Argument(help="What the workflow waits for.", show_default=False)],
    payload: Annotated[
        str, typer.Option("--payload", help="JSON, @FILE, or - for standard input.", show_default=False)
    ] = "null",
    json: JsonFlag = False,
) -> None:
    """Tell an execution something. Kept until its workflow waits for a signal of that name.

    \b
    Examples:
      af executions signal exec_01JD3ZJ4W3E5V8Q2N7M0K1T9XA approved --payload '{"by": "mara"}'
    """
    value = execution_input(payload, None, ())
    ask(json, lambda api: api.signal(execution, name, value))


@app.command()
def answer(
    execution: ExecutionArgument,
    task: Annotated[str, typer.Argument(help="The path of an open task.", show_default=False)],
    answer: Annotated[str, typer.Argument(help="JSON, @FILE, or -.", show_default=False)],
    json: JsonFlag = False,
) -> None:
    """Answer a task that an execution has put before people.

    \b
    Examples:
      af executions answer exec_01JD3ZJ4W3E5V8Q2N7M0K1T9XA approve '{"approved": true}'
    """
    value = execution_input(answer, None, ())
    ask(json, lambda api: api.answer(execution, task, value))


@app.command("vars")
def update_vars(
    execution: ExecutionArgument,
    values: Annotated[str, typer.Argument(help="A JSON object, @FILE, or -.", show_default=False)],
    json: JsonFlag = False,
) -> None:
    """Change variables of an execution; those not named stay.

    \b
    Examples:
      af executions vars exec_01JD3ZJ4W3E5V8Q2N7M0K1T9XA '{"limit": 20}'
    """
    changes = execution_input(values, None, ())
    if not isinstance(changes, dict):
        raise UnusableInput("variables are an object", """For example '{"limit": 20}'.""")
    ask(json, lambda api: api.update_vars(execution, changes))


@app.command()
def retry(execution: ExecutionArgument, json: JsonFlag = False) -> None:
    """Continue a failed execution from the step that failed.

    \b
    Examples:
      af executions retry exec_01JD3ZJ4W3E5V8Q2N7M0K1T9XA
    """
    ask(json, lambda api: api.retry(execution))
