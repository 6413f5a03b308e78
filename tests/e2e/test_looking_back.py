"""Why an execution is where it is, over REST, the SDK and `af`; and stopping one to look around."""

import pytest

from agentflow.errors import Conflict, NotFound

HEAD = "apiVersion: agentflow/v1\nkind: Workflow\nmetadata: {name: NAME, version: 1.0.0}\nspec:\n"
TREE = (
    HEAD.replace("NAME", "looked-at-tree")
    + """\
  planner: behavior_tree
  timeout: 10m
  vars: {calm: true}
  tree:
    sequence:
      - signal: {signal: go, name: told, vars: {n: "${output.n}"}}
      - condition: "vars.n > 1"
      - signal: {signal: end, name: last}
"""
)
MACHINE = (
    HEAD.replace("NAME", "looked-at-machine")
    + """\
  planner: fsm
  timeout: 10m
  fsm:
    initial_state: told
    final_states: [last]
    states:
      told: {wait: {signal: go}, transitions: [{condition: "output.n > 1", to: last}, {to: told}]}
      last: {wait: {signal: end}}
"""
)


@pytest.fixture(autouse=True)
async def registered(api):
    await api.push_workflow(TREE)
    await api.push_workflow(MACHINE)


async def test_every_past_tick_of_a_tree_can_be_looked_at(api):
    execution = (await api.execute("looked-at-tree", {})).execution_id
    await api.signal(execution, "go", {"n": 2})
    await api.update_vars(execution, {"calm": False})

    first, second, changed = (await api.ticks(execution)).items

    assert (first.nodes, first.vars) == ({"tree/told": "running", "tree": "running"}, {"calm": True})
    assert second.nodes["tree/told"] == "succeeded"
    assert (second.nodes["tree/last"], second.vars) == ("running", {"n": 2})
    assert (changed.nodes, changed.vars) == ({}, {"calm": False})
    standing = await api.tick(execution, second.version)
    assert (standing.nodes["tree/1"], standing.vars) == ("succeeded", {"calm": True, "n": 2})
    assert (await api.ticks(execution, after=second.version)).items == [changed]
    for version in (1, 999):
        with pytest.raises(NotFound):
            await api.tick(execution, version)


async def test_a_breakpoint_pauses_a_live_tree_before_its_node_begins(api):
    execution = (await api.execute("looked-at-tree", {})).execution_id
    await api.set_breakpoints(execution, ["tree/last"])

    stopped = await api.signal(execution, "go", {"n": 2})

    assert (stopped.status, stopped.stopped_at, stopped.signals) == ("paused", "tree/last", [])
    went_on = await api.resume(execution)
    assert (went_on.status, went_on.stopped_at, went_on.breakpoints) == ("running", None, ["tree/last"])
    assert (await api.signal(execution, "end", "done")).output == "done"


async def test_what_was_evaluated_is_told_with_its_values_and_machines_have_no_ticks(api):
    execution = (await api.execute("looked-at-machine", {})).execution_id
    await api.signal(execution, "go", {"n": 1})
    await api.signal(execution, "go", {"n": 2})

    found = (await api.evaluations(execution)).items

    assert [(it.expression, it.values, it.result) for it in found] == [
        ("output.n > 1", {"output.n": 1}, False),
        ("output.n > 1", {"output.n": 2}, True),
    ]
    assert (await api.evaluations(execution, after=found[0].version)).items == found[1:]
    with pytest.raises(Conflict):
        await api.ticks(execution)


async def test_an_operator_sees_all_of_it_in_a_terminal(api, af):
    execution = (await api.execute("looked-at-tree", {})).execution_id

    def said(*words: str) -> str:
        return af("executions", *words).stdout

    assert "is running" in said("break", execution, "tree/last")
    await api.signal(execution, "go", {"n": 2})

    assert "vars.n > 1  ->  true" in said("explain", execution)
    assert "vars.n = 2" in said("explain", execution)
    said("break", execution)
    assert "is running" in said("resume", execution)
    assert "tree/last  running" in said("ticks", execution)
