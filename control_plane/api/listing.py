"""How every list is asked for: `filter[field]=`, `sort=`, `limit=` and an opaque `cursor`, and how it is answered.

A cursor names the last row that was shown, not a number of rows, so pages stay whole while rows are added.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec
from fastapi import Request

from agentflow import limits
from agentflow.clock import parse_rfc3339
from agentflow.errors import Invalid, Problem
from agentflow.workflow.suggest import did_you_mean
from control_plane.registry.cursors import Key, cursor_of, key_of

_ATTRIBUTE = "input."


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """What a caller wants to see of a list."""

    question: str  # the list, its filters and its order: what a cursor belongs to
    filters: dict[str, Any]
    attributes: dict[str, str]  # filters on attributes of the input, by path
    sort: str
    descending: bool
    limit: int
    after: Key | None

    def answer(
        self, items: Sequence[dict[str, Any]], last: Key | None, *, total: int | None, exact: bool = True
    ) -> dict[str, Any]:
        """`last`: the place of the last row looked at, where there may be more after it."""
        return {
            "items": items,
            "next_cursor": None if last is None else cursor_of(self.question, last),
            "total_count": total,
            **({} if exact else {"total_count_is_minimum": True}),
        }


class Filter(msgspec.Struct, frozen=True):
    about: str
    read: Callable[[str], Any] = str
    schema: dict[str, Any] = msgspec.field(default_factory=lambda: {"type": "string"})


class Listing:
    """The ways one list can be asked for: a dependency of its route, and its part of the OpenAPI document."""

    def __init__(
        self, *, filters: Mapping[str, Filter], sorts: Sequence[str], default_sort: str, by_input: bool = False
    ) -> None:
        self._filters = dict(filters)
        self._sorts = [each for name in sorts for each in (name, f"-{name}")]
        self._default_sort = default_sort
        self._by_input = by_input

    def __call__(self, request: Request) -> Page:
        problems: list[Problem] = []
        given: dict[str, str] = {}
        for name, value in request.query_params.multi_items():
            if name in given:
                problems.append(Problem("It is given twice.", path=name))
            given[name] = value
        filters: dict[str, Any] = {}
        attributes: dict[str, str] = {}
        for name, value in given.items():
            if name.startswith("filter[") and name.endswith("]"):
                self._filter(name[7:-1], value, filters, attributes, problems)
            elif name not in ("sort", "limit", "cursor"):
                known = [*(f"filter[{field}]" for field in self._filters), "sort", "limit", "cursor"]
                problems.append(
                    Problem("There is no such parameter.", did_you_mean(name, known, kind="parameters"), path=name)
                )
        sort = given.get("sort", self._default_sort)
        if sort not in self._sorts:
            problems.append(
                Problem(f"`{sort}` is no order of this list.", f"One of {', '.join(self._sorts)}.", path="sort")
            )
        limit = _number(given.get("limit"), problems)
        if problems:
            raise Invalid(
                "The list cannot be asked for like this.", hint="See /api/v1/openapi.json.", problems=problems
            )
        question = f"{request.scope['path']}?{sorted(filters.items())}{sorted(attributes.items())}{sort}"
        cursor = given.get("cursor")
        return Page(
            question=question,
            filters=filters,
            attributes=attributes,
            sort=sort.removeprefix("-"),
            descending=sort.startswith("-"),
            limit=limit,
            after=None if cursor is None else key_of(question, cursor),
        )

    def _filter(
        self, field: str, value: str, filters: dict[str, Any], attributes: dict[str, str], problems: list[Problem]
    ) -> None:
        place = f"filter[{field}]"
        if self._by_input and field.startswith(_ATTRIBUTE) and len(field) > len(_ATTRIBUTE):
            attributes[field.removeprefix(_ATTRIBUTE)] = value
        elif field not in self._filters:
            known = [*self._filters, *(["input.<name>"] if self._by_input else [])]
            problems.append(Problem("There is no such filter.", did_you_mean(field, known, kind="filters"), path=place))
        else:
            try:
                filters[field] = self._filters[field].read(value)
            except ValueError as error:
                problems.append(Problem(str(error), path=place))

    def openapi(self) -> dict[str, Any]:
        properties = {name: {**each.schema, "description": each.about} for name, each in sorted(self._filters.items())}
        by_input = {"patternProperties": {r"^input\..+$": {"type": "string"}}} if self._by_input else {}
        return {
            "parameters": [
                {
                    "name": "filter",
                    "in": "query",
                    "required": False,
                    "style": "deepObject",
                    "explode": True,
                    "description": "Only what fits every filter, as `filter[field]=value`."
                    + (" `filter[input.customer]=Mara` looks into the input." if self._by_input else ""),
                    "schema": {"type": "object", "properties": properties, **by_input, "additionalProperties": False},
                },
                _parameter("sort", {"type": "string", "enum": self._sorts, "default": self._default_sort},
                           "The order; `-` means descending."),
                _parameter("limit", {"type": "integer", "minimum": 1, "maximum": limits.LIST_PAGE_MAX,
                                     "default": limits.LIST_PAGE_DEFAULT}, "How many at most."),
                _parameter("cursor", {"type": "string"}, "`next_cursor` of the page before, with the same filters."),
            ]
        }  # fmt: skip


def one_of(*allowed: str) -> Filter:
    """One value of a fixed set, or several with commas between them."""

    def read(text: str) -> tuple[str, ...]:
        given = tuple(sorted(set(text.split(","))))
        unknown = [each for each in given if each not in allowed]
        if unknown:
            raise ValueError(f"`{unknown[0]}` is none of {', '.join(allowed)}.")
        return given

    single = "|".join(allowed)
    about = f"One of {', '.join(allowed)}, or several with commas between them."
    return Filter(about, read, {"type": "string", "pattern": f"^({single})(,({single}))*$"})


def flag(about: str) -> Filter:
    def read(text: str) -> bool:
        if text not in ("true", "false"):
            raise ValueError(f"`{text}` is neither true nor false.")
        return text == "true"

    return Filter(about, read, {"type": "boolean"})


def moment(about: str) -> Filter:
    def read(text: str) -> int:
        try:
            return parse_rfc3339(text)
        except (ValueError, OverflowError):
            raise ValueError(f"{text[:100]!r} is no moment; write it like 2026-11-18T06:00:00Z.") from None

    return Filter(about, read, {"type": "string", "format": "date-time"})


def keyed(page: Page, rows: Iterable[Any], key: Callable[[Any], Key]) -> tuple[list[Any], Key | None]:
    """A page of rows that are all at hand: sorted, from behind the cursor on; and its last place if there are more."""
    ordered = sorted(rows, key=key, reverse=page.descending)
    if page.after is not None:
        after = page.after
        ordered = [row for row in ordered if (key(row) < after if page.descending else key(row) > after)]
    shown = ordered[: page.limit]
    return shown, key(shown[-1]) if len(ordered) > len(shown) else None


def _number(text: str | None, problems: list[Problem]) -> int:
    if text is None:
        return limits.LIST_PAGE_DEFAULT
    if text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= limits.LIST_PAGE_MAX:
        return int(text[:9])
    problems.append(Problem(f"It must be a number from 1 to {limits.LIST_PAGE_MAX}.", path="limit"))
    return limits.LIST_PAGE_DEFAULT


def _parameter(name: str, schema: dict[str, Any], about: str) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": False, "description": about, "schema": schema}
