"""The live log of `af dev`: committed events as they come from the API, one line for each thing that happened.

Pure apart from printing.
"""

from typing import TYPE_CHECKING

from agentflow import limits
from agentflow.cli.durations import duration
from agentflow.cli.progress import StepLines, event_from_api, print_line
from agentflow.clock import rfc3339
from agentflow.execution.events import Event, ExecutionCompleted, ExecutionFailed, ExecutionStarted
from agentflow.sdk.models import LiveEvent

if TYPE_CHECKING:
    from rich.console import Console


def large_values(told: LiveEvent) -> list[str]:
    """A warning for each value of an event that was too large to stay in it: whose it is, where, and how large."""
    whose = told.data.get("path") or told.data.get("key") or "the execution"
    return [
        f"{whose}: `{'.'.join(map(str, value['path']))}` has {value['bytes'] / 1024:,.0f} KB, more than the "
        f"{limits.CLAIM_CHECK_BYTES // 1024} KB that events and messages hold; it is kept beside them"
        for value in told.large
    ]


class ExecutionLog:
    """Keeps, for each execution under way, what its next line needs; forgets it when the execution ends."""

    def __init__(self, console: "Console") -> None:
        self._console = console
        self._lines: dict[str, StepLines] = {}
        self._started_at_ms: dict[str, int] = {}

    def show(self, told: LiveEvent) -> None:
        event = event_from_api(told)
        if event is None:
            return
        prefix = f"{rfc3339(event.at_ms)[11:19]} {told.workflow} {told.execution_id[-6:]}"
        self._show_event(told.execution_id, prefix, event)
        for warning in large_values(told):
            self._console.print(f"{prefix}  ! {warning}", style="yellow", markup=False)

    def _show_event(self, execution: str, prefix: str, event: Event) -> None:
        match event:
            case ExecutionStarted():
                self._started_at_ms[execution] = event.at_ms
                self._console.print(f"{prefix}  started    {execution}", style="dim")
            case ExecutionCompleted():
                self._console.print(f"{prefix}  completed  {self._took(execution, event.at_ms)}", style="green")
                self._forget(execution)
            case ExecutionFailed(fault=fault):
                took = self._took(execution, event.at_ms)
                self._console.print(f"{prefix}  failed     {took}  {fault.code}: {fault.message}", style="red")
                self._forget(execution)
            case _:
                line = self._lines.setdefault(execution, StepLines()).line(event)
                if line is not None:
                    print_line(self._console, line, indent=f"{prefix}  ")

    def _took(self, execution: str, ended_at_ms: int) -> str:
        started_at_ms = self._started_at_ms.get(execution)
        return "" if started_at_ms is None else f"in {duration(ended_at_ms - started_at_ms)}"

    def _forget(self, execution: str) -> None:
        self._lines.pop(execution, None)
        self._started_at_ms.pop(execution, None)
