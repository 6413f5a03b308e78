"""Lists of executions: what may be asked for, and one line of the answer. The read side's shapes, filled by storage."""

from collections.abc import Iterator
from typing import Any, Protocol

import msgspec

from agentflow.ids import ExecutionId, TenantId, TraceId, WorkflowId


class ListedWorkflow(msgspec.Struct, frozen=True):
    id: WorkflowId
    name: str
    version: str


class ExecutionSummary(msgspec.Struct, frozen=True):
    id: ExecutionId
    workflow: ListedWorkflow
    status: str
    started_at_ms: int
    ended_at_ms: int | None
    trace: TraceId


class ExecutionFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Everything given must fit; nothing given fits all."""

    workflow: str | None = None  # an id, a name, or name@version
    statuses: tuple[str, ...] = ()
    tag: str | None = None  # of the workflow
    started_from_ms: int | None = None
    started_before_ms: int | None = None
    attributes: dict[str, str] = {}  # of the input: the text of a value by its path, with dots between names


class ExecutionPlace(msgspec.Struct, frozen=True):
    """Where a row stands in the order of starts."""

    started_at_ms: int
    id: str


class ExecutionPage(msgspec.Struct, frozen=True):
    items: tuple[ExecutionSummary, ...]
    reached: ExecutionPlace | None  # the last row looked at, where there may be more after it


class ExecutionPages(Protocol):
    async def page(
        self,
        tenant: TenantId,
        wanted: ExecutionFilter,
        *,
        limit: int,
        after: ExecutionPlace | None,
        newest_first: bool,
    ) -> ExecutionPage: ...


def attributes_fit(input: Any, wanted: dict[str, str]) -> bool:
    """Whether an input has every attribute: a value whose text it is, or a list with such a value in it."""
    return all(any(_text(value) == text for value in _at(input, path.split("."))) for path, text in wanted.items())


def _at(value: Any, names: list[str]) -> Iterator[Any]:
    if isinstance(value, list):
        for item in value:
            yield from _at(item, names)
    elif not names:
        yield value
    elif isinstance(value, dict) and names[0] in value:
        yield from _at(value[names[0]], names[1:])


def _text(value: Any) -> str | None:
    """A text as it is, and what else JSON has without parts as JSON writes it."""
    if isinstance(value, str):
        return value
    return None if isinstance(value, dict | list) else msgspec.json.encode(value, enc_hook=lambda _: None).decode()
