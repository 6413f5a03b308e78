"""`af dev`: the whole platform on this machine, with a live log, until Ctrl-C."""

import asyncio
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agentflow.cli.definitions import definition_text
from agentflow.cli.output import stderr, stdout

if TYPE_CHECKING:
    from agentflow.cli.feed import ExecutionLog
    from agentflow.devstack.platform import EmbeddedPlatform
    from agentflow.devstack.supervision import Exit
    from agentflow.settings import Settings

_AGENTS_HERE = Path("agents.yaml")


def dev(
    agents: Annotated[
        Path | None,
        typer.Option(
            "--agents",
            help="The agents to host: ./agents.yaml unless said otherwise, else the support template's.",
            show_default=False,
        ),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            "--port",
            min=0,
            max=65535,
            help="Where the API listens: 8080 unless said otherwise; 0 takes a free port.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Run everything on this machine: NATS, SQLite, control plane and a worker, with a live log of executions.

    State is kept in .agentflow (AF_HOME) and is there again the next time.
    Ctrl-C stops everything.

    \b
    Examples:
      af dev
      af dev --agents my_agents.yaml --port 9000
    """
    from agentflow.cli.interrupts import until_interrupted
    from agentflow.cli.services import require_embedded
    from agentflow.settings import load_settings

    require_embedded()
    settings = load_settings()
    if port is not None:
        settings = settings.model_copy(update={"http_listen": f"127.0.0.1:{port}"})
    hosted = agents or settings.agents_file or _default_agents()
    definition_text(hosted)  # a wrong path is told at once, not by a worker that will not start
    asyncio.run(until_interrupted(_dev(settings, hosted)))
    stderr().print("stopped")


def _default_agents() -> Path:
    from agentflow.cli.bundled import template

    return _AGENTS_HERE if _AGENTS_HERE.is_file() else template("support") / "agents.yaml"


async def _dev(settings: "Settings", agents: Path) -> None:
    from agentflow.cli.feed import ExecutionLog
    from agentflow.devstack.platform import embedded_platform
    from agentflow.settings import as_environment
    from agentflow.telemetry.logs import configure_logs

    configure_logs("warning", "console")  # the services log to files; here only what disturbs the live log's own work
    stderr().print("starting NATS, the control plane and a worker …", style="dim")
    async with embedded_platform(
        settings.home,
        agents_file=agents,
        http_listen=settings.http_listen,
        extra_env=as_environment(settings),
        on_exit=_note_restart,
    ) as platform:
        _introduce(platform, settings, agents)
        await _show_feed(platform, ExecutionLog(stdout()))


def _introduce(platform: "EmbeddedPlatform", settings: "Settings", agents: Path) -> None:
    from agentflow.settings import without_password

    console = stdout()
    console.print("AgentFlow is up; Ctrl-C stops everything.", style="bold")
    console.print(f"  API     {platform.api_url}/api/v1")
    console.print(f"  docs    {platform.api_url}/api/v1/openapi.json")
    console.print(f"  state   {without_password(settings.db_dsn).removeprefix('sqlite:///')}")
    console.print(f"  logs    {settings.home / 'logs'}")
    console.print(f"  agents  {agents}")
    if platform.api_url != settings.api_url:
        console.print(f"For af in another terminal: export AF_API_URL={platform.api_url}")
    console.print("Executions appear here as they happen:", style="dim")


async def _show_feed(platform: "EmbeddedPlatform", log: "ExecutionLog") -> None:
    from agentflow.sdk.client import Client

    async with Client(platform.api_url, api_key=platform.api_key) as client:
        async for event in client.watch(patience_s=inf):  # a control plane that ends is started again
            log.show(event)


def _note_restart(exit: "Exit") -> None:
    stderr().print(
        f"{exit.name} {exit.reason}; starting it again in {exit.restart_in_s:g} s (log: {exit.log})", style="yellow"
    )
