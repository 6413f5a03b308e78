"""`af costs`: what was spent."""

import asyncio
from enum import StrEnum
from typing import Annotated

import typer

from agentflow.cli.output import JsonFlag, print_json, print_table, stdout


class By(StrEnum):
    TENANT = "tenant"
    WORKFLOW = "workflow"
    AGENT = "agent"
    RESOURCE = "resource"


class Period(StrEnum):
    TODAY = "today"
    YESTERDAY = "yesterday"
    LAST_7_DAYS = "last_7_days"
    LAST_30_DAYS = "last_30_days"
    THIS_MONTH = "this_month"
    LAST_MONTH = "last_month"
    ALL = "all"


def costs(
    by: Annotated[By, typer.Option(help="What to add it up by.")] = By.WORKFLOW,
    period: Annotated[Period, typer.Option(help="When; days begin at midnight UTC.")] = Period.TODAY,
    json: JsonFlag = False,
) -> None:
    """Show what was spent: dollars, tokens, and what has no known price.

    \b
    Examples:
      af costs
      af costs --by agent --period this_month
      af costs --by resource --json
    """
    asyncio.run(_costs(by, period, json))


async def _costs(by: By, period: Period, json: bool) -> None:
    from agentflow.cli.connection import control_plane

    async with control_plane() as api:
        found = await api.costs(scope=by, period=period)
    if json:
        print_json(found)
        return
    if not found.items:
        stdout().print(f"Nothing was spent ({period}).")
        return
    rows = [
        (line.name, line.dollars, str(sum(line.tokens.values())), str(line.observations), str(line.cost_unknown))
        for line in found.items
    ]
    print_table((by.value, "dollars", "tokens", "uses", "price unknown"), rows)
