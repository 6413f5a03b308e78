from control_plane.costs.estimate import Figure, ObservedRun, PlanCostModel, StepRun, Usage
from planners.kinds import compile_workflow
from planners.plan import Plan


def plan_of(states: str, *, initial: str = "a", final: str = "end") -> Plan:
    head = "apiVersion: agentflow/v1\nkind: Workflow\nmetadata: {name: w, version: 1.0.0}\n"
    spec = f"spec: {{planner: fsm, fsm: {{initial_state: {initial}, final_states: [{final}], states: {{{states}}}}}}}"
    return compile_workflow(head + spec).program.plan()


LINE = plan_of(
    "a: {agent: reader, on_success: b}, b: {tool: priced.echo, input: {}, on_success: end}, end: {succeed: {}}"
)
LOOP = plan_of("a: {loop: {while: 'index < 9', max: 20, do: {agent: reader}}, on_success: end}, end: {succeed: {}}")


def run(*steps: StepRun, duration_ms: int = 100) -> ObservedRun:
    return ObservedRun(duration_ms, steps)


def cost(micro: int, tokens: int = 0) -> Usage:
    return Usage(micro, tokens, priced=True)


def test_a_step_is_estimated_by_its_own_runs():
    runs = [
        run(StepRun("a", 10, cost(micro, 100)), StepRun("b", 5, cost(1_000)), duration_ms=micro)
        for micro in (100, 200, 300)
    ]
    found = PlanCostModel().calibrate(runs).estimate(LINE)

    first, second = found.steps
    assert (first.basis, first.microdollars, first.tokens) == ("step", Figure(200, 300, 3), Figure(100, 100, 3))
    assert (second.basis, second.microdollars.expected) == ("step", 1_000)
    assert (found.microdollars.expected, found.microdollars.upper) == (1_200, 1_300)
    assert (found.executions, found.unknown, found.duration_ms) == (3, (), Figure(200, 300, 3))


def test_the_bound_is_what_nineteen_of_twenty_do_not_exceed():
    runs = [run(StepRun("a", 1, cost(micro)), StepRun("b", 1, cost(0))) for micro in range(1, 101)]

    assert PlanCostModel().calibrate(runs).estimate(LINE).microdollars.upper == 95


def test_how_often_a_loop_turns_is_known_from_earlier_runs_and_bounded_by_the_plan_before():
    seen = PlanCostModel().calibrate([run(*[StepRun("a.do", 1, cost(10))] * turns) for turns in (3, 5)])

    assert seen.estimate(LOOP).steps[0].runs == Figure(4, 5, 2)
    assert seen.estimate(LOOP).microdollars.expected == 40
    unseen = PlanCostModel(elsewhere={"reader": (cost(10),)}).estimate(LOOP)
    assert unseen.steps[0].runs == Figure(1, 20, 0)
    assert (unseen.microdollars.expected, unseen.microdollars.upper) == (10, 200)


def test_a_way_that_is_seldom_taken_counts_as_seldom():
    often = plan_of(
        "a: {agent: reader, transitions: [{condition: 'output.x', to: b}, {to: end}]}, "
        "b: {agent: writer, on_success: end}, end: {succeed: {}}"
    )
    runs = [run(StepRun("a", 1, cost(10)), *([StepRun("b", 1, cost(1_000))] * (n == 0))) for n in range(4)]
    found = PlanCostModel().calibrate(runs).estimate(often)

    assert found.steps[1].runs.expected == 0.25
    assert found.microdollars.expected == 260


def test_what_was_never_seen_is_known_from_its_agent_or_its_tools_price():
    model = PlanCostModel(elsewhere={"reader": (cost(10), cost(30))}, declared={"priced.echo": 5_000})
    first, second = model.estimate(LINE).steps

    assert (first.basis, first.microdollars) == ("agent", Figure(20, 30, 2))
    assert (second.basis, second.microdollars) == ("declared", Figure(5_000, 5_000, 0))
    assert model.estimate(LINE).microdollars.expected == 5_020


def test_what_nobody_knows_is_named_and_never_nought():
    nothing = PlanCostModel().estimate(LINE)
    assert [one.name for one in nothing.unknown] == ["a", "b"]
    assert (nothing.microdollars.expected, nothing.microdollars.upper) == (None, None)

    silent = PlanCostModel().calibrate([run(StepRun("a", 1, None), StepRun("b", 1, cost(7)))]).estimate(LINE)
    assert [(one.name, one.reason) for one in silent.unknown] == [("a", "It has not told yet what it costs.")]
    assert (silent.microdollars.expected, silent.microdollars.upper) == (7, None)

    partly = Usage(5, 10, priced=True) + Usage(0, 3, unpriced=("model local",))
    mixed = PlanCostModel().calibrate([run(StepRun("a", 1, partly), StepRun("b", 1, cost(7)))]).estimate(LINE)
    assert [(one.name, one.reason) for one in mixed.unknown] == [("a", "Nobody knows the price of model local.")]
    assert (mixed.microdollars.expected, mixed.tokens.expected) == (12, 13)


def test_a_child_workflow_is_named_as_left_out():
    parent = plan_of("a: {subworkflow: {name: other}, timeout: 1m, on_success: end}, end: {succeed: {}}")

    (left_out,) = PlanCostModel().estimate(parent).unknown
    assert left_out.name == "a"
    assert "estimate of its own" in left_out.reason
