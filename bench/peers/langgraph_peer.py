"""LangGraph with its PostgreSQL checkpointer, durability `sync`: a checkpoint is committed before the next step."""

import asyncio
import operator
import uuid
from importlib.metadata import version
from typing import Annotated, Any, TypedDict

import harness
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Send
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool


class Line(TypedDict):
    i: int
    text: str
    end: int


class Fan(TypedDict):
    text: str
    width: int
    out: Annotated[list[Any], operator.add]
    joined: int


async def node(state: Line) -> dict[str, Any]:
    return harness.step({"i": state["i"], "text": state["text"]})


def chain(steps: int) -> StateGraph:
    graph = StateGraph(Line)
    for number in range(steps):
        graph.add_node(f"s{number}", node)
        graph.add_edge(START if number == 0 else f"s{number - 1}", f"s{number}")
    graph.add_edge(f"s{steps - 1}", END)
    return graph


def loop() -> StateGraph:
    graph = StateGraph(Line)
    graph.add_node("s", node)
    graph.add_edge(START, "s")
    graph.add_conditional_edges("s", lambda state: "s" if state["i"] < state["end"] else END, ["s", END])
    return graph


async def branch(payload: harness.Payload) -> dict[str, Any]:
    return {"out": [harness.step(payload)]}


def fan_out() -> StateGraph:
    graph = StateGraph(Fan)
    graph.add_node("branch", branch)
    graph.add_node("join", lambda state: {"joined": len(state["out"])})
    graph.add_conditional_edges(
        START,
        lambda state: [Send("branch", {"i": number, "text": state["text"]}) for number in range(state["width"])],
        ["branch"],
    )
    graph.add_edge("branch", "join")
    graph.add_edge("join", END)
    return graph


async def main() -> None:
    harness.stop_at_sigterm()
    options = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
    async with AsyncConnectionPool(harness.postgres(), min_size=4, max_size=10, open=False, kwargs=options) as pool:
        saver = AsyncPostgresSaver(pool)
        await saver.setup()
        short, long, wide = (
            graph.compile(checkpointer=saver) for graph in (chain(harness.SIZE["steps"]), loop(), fan_out())
        )

        def thread(steps: int) -> dict[str, Any]:
            return {"configurable": {"thread_id": uuid.uuid4().hex}, "recursion_limit": steps + 10}

        async def line(steps: int, start: int) -> harness.Payload:
            graph = short if steps == harness.SIZE["steps"] else long
            state = {**harness.first(start), "end": start + steps}
            result = await graph.ainvoke(state, thread(steps), durability="sync")
            return {"i": result["i"], "text": result["text"]}

        async def fan(width: int) -> int:
            state = {"text": harness.TEXT, "width": width, "out": []}
            return (await wide.ainvoke(state, thread(5), durability="sync"))["joined"]

        durable = "each step's checkpoint committed to PostgreSQL"
        await harness.measure(line, fan, version=version("langgraph"), durable=durable)


asyncio.run(main())
