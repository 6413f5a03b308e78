"""Every bound that a definition can meet: the largest value is taken, and the next one is refused."""

from typing import Any

import pytest

from agentflow import limits
from agentflow.canonical import canonical
from agentflow.workflow.load import read


def definition(state: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "agentflow/v1",
        "kind": "Workflow",
        "metadata": {"name": "bounded", "version": "1.0.0"},
        "spec": {
            "planner": "fsm",
            "fsm": {"initial_state": "s", "final_states": ["s"], "states": {"s": state}},
            **spec,
        },
    }


def agent(**more: Any) -> dict[str, Any]:
    return {"agent": "a", **more}


AT = {
    "tries of a step": (limits.STEP_ATTEMPTS_MAX, lambda n: definition(agent(retry={"max_attempts": n}))),
    "pause between tries": (
        limits.RETRY_DELAY_MS_MAX,
        lambda n: definition(agent(retry={"max_attempts": 2, "initial": f"{n}ms"})),
    ),
    "timeout of a step": (limits.TIMEOUT_MS_MAX, lambda n: definition(agent(timeout=f"{n}ms"))),
    "length of a wait": (limits.TIMEOUT_MS_MAX, lambda n: definition({"wait": {"duration": f"{n}ms"}})),
    "items at once": (
        limits.MAP_CONCURRENCY_MAX,
        lambda n: definition({"map": {"over": "${input.items}", "concurrency": n, "do": {"agent": "a"}}}),
    ),
    "branches": (
        limits.BRANCHES_MAX,
        lambda n: definition({"parallel": {"branches": {f"b{i}": {"agent": "a"} for i in range(n)}}}),
    ),
    "executions at once": (limits.WORKFLOW_CONCURRENCY_MAX, lambda n: definition(agent(), concurrency=n)),
}


@pytest.mark.parametrize(("most", "made"), AT.values(), ids=AT)
def test_the_largest_is_taken_and_the_next_is_refused(most: int, made: Any) -> None:
    for size in (most - 1, most):
        assert read(canonical(made(size)).decode()).problems == [], size
    refused = read(canonical(made(most + 1)).decode())
    assert refused.problems
