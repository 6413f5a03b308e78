"""`af demo`: the bundled templates at work on a platform of their own, started for it and stopped after it."""

import asyncio
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import typer

from agentflow.cli.durations import duration, took
from agentflow.cli.output import JsonFlag, print_json, print_table, stderr, stdout
from agentflow.errors import AgentFlowError
from agentflow.process_exit import ExecutionDidNotComplete

if TYPE_CHECKING:
    from rich.console import Console

    from agentflow.sdk.client import Client
    from agentflow.sdk.models import Execution

app = typer.Typer(invoke_without_command=True)

_HOME = Path(".agentflow/demo")
_DEMOS = {"support": "Support tickets are classified, answered from a knowledge base, or handed to a person."}


class Case(msgspec.Struct, frozen=True):
    """One line of a template's `tickets.json`."""

    name: str
    input: dict[str, Any]


@app.callback()
def demo(context: typer.Context, json: JsonFlag = False) -> None:
    """See AgentFlow at work, on this machine alone. Without a name: the list of demos.

    \b
    Examples:
      af demo
      af demo support
    """
    if context.invoked_subcommand is not None:
        return
    if json:
        print_json([{"name": name, "about": about} for name, about in _DEMOS.items()])
    else:
        print_table(("DEMO", "ABOUT"), list(_DEMOS.items()))


@app.command()
def support() -> None:
    """Execute a few support tickets that take different paths. Needs no model and no network.

    Starts NATS, a control plane and a worker as processes, and stops them at the end.
    Their state is in .agentflow/demo, made anew each time.

    \b
    Examples:
      af demo support
    """
    from agentflow.cli.interrupts import until_interrupted
    from agentflow.cli.services import require_embedded

    require_embedded()
    try:
        interrupted = asyncio.run(until_interrupted(_play("support")))
    except AgentFlowError:
        stderr().print(f"what the processes logged is in {_HOME / 'logs'}", style="dim")
        raise
    if interrupted:
        raise KeyboardInterrupt
    stdout().print("stopped; nothing is left running.")


async def _play(name: str) -> None:
    from agentflow.cli.bundled import template
    from agentflow.clock import SystemClock
    from agentflow.devstack.platform import embedded_platform
    from agentflow.sdk.client import Client
    from agentflow.settings import Settings, as_environment

    folder, console, clock = template(name), stdout(), SystemClock()
    cases = msgspec.json.decode((folder / "tickets.json").read_bytes(), type=list[Case])
    console.print(_DEMOS[name], style="bold")
    console.print("It needs no model and no network: the agents are plain Python functions on this machine.\n")

    _make_room(_HOME)
    began_s = clock.monotonic_s()
    async with embedded_platform(
        _HOME, agents_file=folder / "agents.yaml", extra_env=as_environment(Settings())
    ) as platform:
        started_in = duration(round((clock.monotonic_s() - began_s) * 1000))
        console.print(f"started   NATS, control plane and worker, each a process of its own, in {started_in}")
        async with Client(platform.api_url, api_key=platform.api_key) as api:
            workflow = await api.push_workflow((folder / "workflow.yaml").read_bytes())
            console.print(f"pushed    {workflow.name} {workflow.version} as {workflow.id}")
            ended = [
                await _execute(api, workflow.id, case, f"{number}/{len(cases)}", console)
                for number, case in enumerate(cases, 1)
            ]
    _tell_where_state_lives(console, ended)


def _make_room(home: Path) -> None:
    """Remove what an earlier demo left, unless it is still at work there."""
    from agentflow.devstack.home import locked_home

    with locked_home(home):
        for entry in home.iterdir():
            if entry.is_dir():
                shutil.rmtree(entry)
            elif entry.name != "lock":
                entry.unlink()


async def _execute(api: "Client", workflow: str, case: Case, place: str, console: "Console") -> "Execution":
    from agentflow.cli.run import failure_of, watch

    console.print(f"\n{place}  {case.name}", style="bold")
    for field, value in case.input.items():
        console.print(f"  {field:<10} {value}", style="dim")
    started = await api.execute(workflow, case.input)
    ended = await watch(api, started.execution_id, console)
    if ended.status != "completed":
        raise ExecutionDidNotComplete(ended.id, failure_of(ended))
    console.print(f"  completed in {took(ended.started_at, ended.ended_at)}", style="green")
    console.print_json(msgspec.json.encode(ended.output).decode(), ensure_ascii=False)
    return ended


def _tell_where_state_lives(console: "Console", ended: "list[Execution]") -> None:
    database = _HOME / "agentflow.db"
    size_kb = database.stat().st_size // 1024
    events = sum(execution.version for execution in ended)
    console.print("\nWhere state lives", style="bold")
    console.print(f"  state  {database}  ({size_kb} KiB: {events} events of {len(ended)} executions)")
    console.print(f"  logs   {_HOME / 'logs'}")
    console.print(f"  look into it again: AF_HOME={_HOME} af dev, then af executions", style="dim")
