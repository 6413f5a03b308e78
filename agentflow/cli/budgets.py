"""`af budgets`: how much may be spent on what, and how much of it is gone."""

import asyncio
from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentflow.cli.output import JsonFlag, print_json, print_table, stdout

if TYPE_CHECKING:
    from agentflow.sdk.budgets import Amount, Budget
    from agentflow.sdk.client import Client

app = typer.Typer(no_args_is_help=True, help="How much may be spent by a tenant, a workflow or an agent.")

BudgetArgument = Annotated[str, typer.Argument(help="A budget's id, such as bud_01J….", show_default=False)]


class Period(StrEnum):
    DAY = "day"
    WEEK = "week"
    MONTH = "month"
    TOTAL = "total"


class OnExceed(StrEnum):
    STOP = "stop"
    WARN = "warn"


WorkflowOption = Annotated[str | None, typer.Option("--workflow", help="Of this workflow only.", show_default=False)]
AgentOption = Annotated[str | None, typer.Option("--agent", help="Of this agent only.", show_default=False)]
DollarsOption = Annotated[str | None, typer.Option("--dollars", help="Exact, such as 25.00.", show_default=False)]
TokensOption = Annotated[int | None, typer.Option("--tokens", min=0, help="Of all kinds together.", show_default=False)]


@app.command()
def create(
    workflow: WorkflowOption = None,
    agent: AgentOption = None,
    period: Annotated[Period, typer.Option(help="Begins at midnight UTC; `total` is from now on.")] = Period.MONTH,
    dollars: DollarsOption = None,
    tokens: TokensOption = None,
    on_exceed: Annotated[OnExceed, typer.Option(help="stop: nothing is begun any more; warn: told only.")] = (
        OnExceed.STOP
    ),
    warn_at: Annotated[float, typer.Option(min=0.01, max=1, help="The share from which on it warns.")] = 0.8,
    json: JsonFlag = False,
) -> None:
    """Limit what may be spent: by the whole tenant, a workflow or an agent.

    \b
    Examples:
      af budgets create --dollars 100
      af budgets create --workflow support --period day --dollars 5.00
      af budgets create --agent writer --period total --tokens 2000000 --on-exceed warn
    """
    scope, name = _scope(workflow, agent)
    made: Budget = _ask(
        lambda api: api.budgets.create(
            scope, name, period=period, dollars=dollars, tokens=tokens, on_exceed=on_exceed, warn_at=warn_at
        )
    )
    _told(made, json)


@app.command("list")
def list_budgets(
    workflow: WorkflowOption = None,
    agent: AgentOption = None,
    state: Annotated[str | None, typer.Option("--state", help="ok, warned or exhausted.", show_default=False)] = None,
    json: JsonFlag = False,
) -> None:
    """List budgets, and how much of each is gone.

    \b
    Examples:
      af budgets list
      af budgets list --state exhausted
    """
    scope, name = _scope(workflow, agent)
    asked = {"scope": scope, "name": name} if name else {}
    found = _ask(lambda api: api.budgets.list(**asked, state=state, limit=200))
    if json:
        print_json(found)
        return
    if not found.items:
        stdout().print("No budgets. Make one with `af budgets create --dollars …`.")
        return
    rows = [
        (one.id, _of(one), one.state, _amounts(one.spent, one.limit), one.on_exceed, one.period_ends_at or "never")
        for one in found.items
    ]
    print_table(("ID", "OF", "STATE", "SPENT", "THEN", "AGAIN"), rows)


@app.command()
def show(budget: BudgetArgument, json: JsonFlag = False) -> None:
    """Show a budget, what is spent of it and what remains.

    \b
    Examples:
      af budgets show bud_01JD3ZJ4W3E5V8Q2N7M0K1T9XA
    """
    _told(_ask(lambda api: api.budgets.get(budget)), json)


@app.command()
def update(
    budget: BudgetArgument,
    dollars: DollarsOption = None,
    tokens: TokensOption = None,
    on_exceed: Annotated[OnExceed | None, typer.Option(help="stop or warn.", show_default=False)] = None,
    warn_at: Annotated[
        float | None, typer.Option(min=0.01, max=1, help="The share from which on it warns.", show_default=False)
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Allow more, or less. What waits for the budget goes on by itself within seconds.

    \b
    Examples:
      af budgets update bud_01JD3ZJ4W3E5V8Q2N7M0K1T9XA --dollars 50
      af budgets update bud_01JD3ZJ4W3E5V8Q2N7M0K1T9XA --on-exceed warn
    """
    given = {"dollars": dollars, "tokens": tokens, "on_exceed": on_exceed, "warn_at": warn_at}
    changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    _told(_ask(lambda api: api.budgets.update(budget, **changes)), json)


@app.command()
def delete(budget: BudgetArgument) -> None:
    """Delete a budget. What it has stopped goes on.

    \b
    Examples:
      af budgets delete bud_01JD3ZJ4W3E5V8Q2N7M0K1T9XA
    """
    _ask(lambda api: api.budgets.delete(budget))
    stdout().print(f"The budget {budget} is deleted.")


def _ask(ask: "Callable[[Client], Awaitable[Any]]") -> Any:
    async def run() -> Any:
        from agentflow.cli.connection import control_plane

        async with control_plane() as api:
            return await ask(api)

    return asyncio.run(run())


def _scope(workflow: str | None, agent: str | None) -> tuple[str, str]:
    if workflow is not None and agent is not None:
        raise typer.BadParameter("A budget is of a workflow or of an agent, not of both.")
    if workflow is not None:
        return "workflow", workflow
    return ("tenant", "") if agent is None else ("agent", agent)


def _told(budget: "Budget", json: bool) -> None:
    if json:
        print_json(budget)
        return
    console = stdout()
    console.print(f"{budget.id}  {_of(budget)}  {budget.state}", style="bold")
    console.print(f"spent      {_amounts(budget.spent, budget.limit)}")
    console.print(f"remaining  {_amounts(budget.remaining, budget.limit, of=False)}")
    if budget.cost_unknown:
        console.print(f"unknown    {budget.cost_unknown} observations have no known price and are not in the dollars")
    console.print(f"warns at   {budget.warn_at:.0%}, then {budget.on_exceed}s what it covers at 100%")
    console.print(f"period     {budget.period_began_at} to {budget.period_ends_at or 'its end by hand'}")


def _of(budget: "Budget") -> str:
    return f"{budget.period} of {budget.scope}" + (f" {budget.name}" if budget.name else "")


def _amounts(amount: "Amount", limit: "Amount", *, of: bool = True) -> str:
    parts = []
    if limit.dollars is not None:
        parts.append(f"{amount.dollars}" + (f" of {limit.dollars}" if of else "") + " dollars")
    if limit.tokens is not None:
        parts.append(f"{amount.tokens}" + (f" of {limit.tokens}" if of else "") + " tokens")
    return ", ".join(parts)
