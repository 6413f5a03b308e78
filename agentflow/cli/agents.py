"""`af agents`: which agents there are for your tenant, and who answers for them."""

import asyncio
from typing import Annotated

import typer

from agentflow.cli.output import JsonFlag, print_json, print_table, stdout

app = typer.Typer(no_args_is_help=True, help="See which agents have workers, and how busy they are.")


@app.command("list")
def list_agents(json: JsonFlag = False) -> None:
    """List the agents that some worker answers for now.

    \b
    Examples:
      af agents list
      af agents list --json
    """
    asyncio.run(_list(json))


async def _list(json: bool) -> None:
    from agentflow.cli.connection import control_plane

    async with control_plane() as api:
        agents = [agent async for agent in api.iter_agents()]
    if json:
        print_json(agents)
        return
    if not agents:
        stdout().print("No worker answers for any agent. Start one with `af worker --agents FILE`.")
        return
    rows = [
        (agent.name, agent.health, str(agent.workers), str(agent.running), "yes" if agent.shared else "")
        for agent in agents
    ]
    print_table(("agent", "health", "workers", "running", "shared"), rows)


@app.command()
def show(
    name: Annotated[str, typer.Argument(help="The agent's name.", show_default=False)],
    json: JsonFlag = False,
) -> None:
    """Show each worker that answers for an agent: how busy it is, and when it was last heard.

    \b
    Examples:
      af agents show classifier
      af agents show classifier --json
    """
    asyncio.run(_show(name, json))


async def _show(name: str, json: bool) -> None:
    from agentflow.cli.connection import control_plane

    async with control_plane() as api:
        agent = await api.agent(name)
    if json:
        print_json(agent)
        return
    stdout().print(f"{agent.name}  {agent.health}, {agent.running} running", style="bold")
    rows = [
        (one.worker, one.health, str(one.running), one.started_at, f"{one.heard_s_ago:.1f} s ago")
        for one in agent.instances
    ]
    print_table(("worker", "health", "running", "since", "heard"), rows)
