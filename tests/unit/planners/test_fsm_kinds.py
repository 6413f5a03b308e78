"""Every kind of state: what the guide promises, run through the real heart."""

from agentflow.contracts.step import StepFault
from agentflow.execution import messages as m
from agentflow.execution.state import Status, next_wakeup, pending_commands
from tests.unit.agentflow.execution.scripted import sent, types
from tests.unit.planners.machines import GUIDE, Machine, example

BOOM = StepFault("boom", "It went wrong.")


def failing(_):
    return BOOM


def test_the_whole_example_at_the_top_of_the_guide_runs():
    text = GUIDE.read_text().split("```yaml\n")[1].split("```")[0]

    answered = Machine(text, {"ticket": "t"}, {"classifier": lambda _: {"kind": "bill"}}).work()
    refused = Machine(text, {"ticket": "t"}, {"classifier": lambda _: {"kind": "spam"}}).work()
    broken = Machine(text, {"ticket": "t"}, {"classifier": lambda _: StepFault("net_down", "x")}).work()
    other = Machine(text, {"ticket": "t"}, {"classifier": failing}).work()

    assert (answered.status, answered.vars) == (Status.COMPLETED, {"tries": 1})
    assert (refused.fault.code, refused.vars) == ("refused", {"tries": 0}), "a failing answer changes nothing"
    assert broken.status is Status.COMPLETED
    assert other.fault.code == "refused"


def test_a_step_ends_with_its_output():
    run = Machine(example("Step"), {"ticket": "late"})

    assert run.work().output == {"query": "late"}
    assert run.asked == [("search", {"query": "late"})]


def test_a_choice_takes_the_first_way_that_holds_and_writes_no_event():
    large = Machine(example("choice"), {"amount": 500})
    small = Machine(example("choice"), {"amount": 5})

    assert types(large.last) == ["execution.started", "step.scheduled"]
    assert (large.asked[0][0], small.asked[0][0]) == ("large", "small")


def test_waits_end_by_time_by_a_moment_and_by_a_signal():
    run = Machine(example("wait"), {"at": "1970-01-01T01:00:00Z"})

    assert next_wakeup(run.state) == 1_000 + 300_000
    run.sleep()
    assert next_wakeup(run.state) == 3_600_000
    run.sleep()
    run.want(m.Signal, "approved", {"by": "ann"})
    assert run.work().output == {"payload": {"by": "ann"}}
    assert next_wakeup(run.state) is None


def test_a_signal_that_does_not_come_is_a_fault_that_can_be_routed():
    run = Machine(example("wait"), {"at": 5_000})
    run.sleep()
    run.sleep()

    assert run.sleep().output == {"payload": None}
    assert list(run.state.awaited) == []


def test_a_moment_that_is_none_is_a_fault_of_the_state():
    run = Machine(example("wait"), {"at": "soon"})

    assert run.sleep().fault.code == "not_a_moment"


def test_branches_run_at_once_and_a_join_of_two_halts_the_third():
    run = Machine(example("parallel"), agents={"tester": lambda given: given["built"], "builder": lambda _: "b"})

    assert [path for path, _ in run.asked] == ["checks/lint", "checks/types", "checks/tests/build"]
    run.report("checks/tests/build", "bin")
    run.report("checks/lint", 1)
    decided = run.report("checks/types", 2)
    assert sent(decided) == ["CancelStep checks/tests/run", "DispatchStep report"]
    assert run.work().output == {"passed": {"lint": 1, "types": 2}}
    assert dict(run.state.memory.items()) == {}


def test_a_branch_that_fails_leaves_the_others_alone_while_enough_can_succeed():
    run = Machine(example("parallel"), agents={"linter": failing, "tester": lambda given: given})

    assert run.work().output == {"passed": {"types": {}, "tests": {"built": {}}}}


def test_too_many_failed_branches_fail_the_state_and_halt_the_rest():
    run = Machine(example("parallel"))
    run.report("checks/lint", fault=BOOM)

    decided = run.report("checks/types", fault=BOOM)

    assert sent(decided) == ["CancelStep checks/tests/build"]
    assert run.state.fault == StepFault("boom", "State `checks` failed: Branch `types` failed: It went wrong.")


def test_a_map_runs_so_many_at_a_time_and_keeps_the_order():
    run = Machine(example("map"), {"files": list("abcdef")}, {"reviewer": lambda given: given["file"].upper()})

    assert [path for path, _ in run.asked] == ["review/0", "review/1", "review/2"]
    assert run.report("review/2", "C").commands[0].path == "review/3"
    assert run.work().output == list("ABCDEF")


def test_a_map_tolerates_so_many_failures_and_no_more():
    def picky(bad):
        return {"reviewer": lambda given: BOOM if given["file"] in bad else given["number"]}

    one = Machine(example("map"), {"files": list("abcd")}, picky("b")).work()
    two = Machine(example("map"), {"files": list("abcd")}, picky("bc")).work()

    assert one.output == [0, None, 2, 3]
    assert two.fault.message == "State `review` failed: Item 2 failed: It went wrong."


def test_a_map_over_nothing_is_done_and_one_over_no_list_is_a_fault():
    assert Machine(example("map"), {"files": []}).state.output == []
    assert Machine(example("map"), {"files": "abc"}).state.fault.code == "not_a_list"


def test_a_loop_goes_on_until_its_condition_its_break_or_its_bound():
    ready_at_3 = Machine(example("loop"), agents={"prober": lambda given: {"ready": given["try"] == 3}})
    never = Machine(example("loop"), agents={"prober": lambda given: {"ready": False, "try": given["try"]}})
    bound = Machine(example("loop").replace("max: 10", "max: 2"), agents={"prober": lambda _: {"ready": False}})

    assert ready_at_3.work().output == {"ready": True}
    assert len(ready_at_3.asked) == 4
    assert never.work().output == {"ready": False, "try": 4}
    assert bound.work().fault.code == "loop_bound"
    assert [path for path, _ in ready_at_3.asked][:2] == ["poll/do", "poll/do~2"]


def test_a_loop_over_a_list_sees_item_index_and_the_output_before():
    loop = "{for: '${input}', max: 9, as: page, do: {agent: x, input: ['${page}', '${index}', '${output}']}}"
    run = Machine(
        f"initial_state: l\nfinal_states: [e]\nstates:\n  l: {{loop: {loop}, on_success: e}}\n  e:\n", ["a", "b"]
    )

    assert run.work().output == ["b", 1, ["a", 0, None]]


def test_a_child_gives_its_output_or_its_fault():
    well, badly = (Machine(example("subworkflow"), {"amount": 5}) for _ in range(2))

    assert pending_commands(well.state)[0].version == "^1.2"
    assert well.child("pay", {"paid": 5}).state.output == {"paid": 5}
    assert badly.child("pay", fault=BOOM).state.fault.code == "boom"


def test_a_child_that_takes_too_long_is_cancelled():
    run = Machine(example("subworkflow"), {"amount": 5})

    decision = run.time(1_000 + 3_600_000)

    assert sent(decision) == ["CancelChild pay"]
    assert run.state.fault.code == "timeout"


def test_people_are_asked_and_their_answer_decides():
    run = Machine(example("human"), {"amount": 7})

    assert pending_commands(run.state)[0].task["title"] == "Refund 7?"
    assert pending_commands(run.state)[0].task["form"]["required"] == ["ok"]
    assert run.answer("approve", {"ok": False}).state.fault.code == "not_approved"


SAGA = {"airline": lambda given: given or {"booking": 17}, "hotels": failing}


def test_a_saga_undoes_what_was_done_and_goes_on():
    run = Machine(example("compensate"), agents=SAGA)

    assert run.work().status is Status.COMPLETED
    assert [path for path, _ in run.asked] == ["flight", "hotel", "!undo/1", "apologise"]
    assert run.asked[2][1] == {"cancel": 17}


def test_a_failing_execution_is_compensated_before_it_fails():
    text = example("compensate").replace(", on_error: roll_back", "").replace(
        "  roll_back: {compensate: true, on_success: apologise}\n  apologise: {agent: mailer}\n", ""
    ).replace("[apologise, done]", "[done]")  # fmt: skip
    run = Machine(text, agents=SAGA)
    stubborn = Machine(text, agents=SAGA | {"airline": lambda given: BOOM if given else {"booking": 1}})

    assert run.work().fault == StepFault("boom", "State `hotel` failed: It went wrong.")
    assert run.asked[-1] == ("!undo/1", {"cancel": 17})
    assert stubborn.work().fault.message.endswith("Not undone: flight.")


def test_a_cancelled_saga_is_compensated_in_reverse_and_then_cancelled():
    states = "".join(
        f"  s{n}: {{agent: x, compensation: {{agent: x, input: {n}}}, on_success: s{n + 1}}}\n" for n in range(3)
    )
    run = Machine(f"initial_state: s0\nfinal_states: [s3]\nstates:\n{states}  s3: {{agent: x}}\n")
    for n in range(3):
        run.report(f"s{n}")

    run.want(m.Cancel, "enough")

    assert run.work().status is Status.CANCELLED
    assert [given for path, given in run.asked if path.startswith("!")] == [2, 1, 0]


def test_fail_and_succeed_end_with_what_they_say():
    assert Machine(example("fail and succeed"), {"amount": 5}).state.output == {"amount": 5}
    assert Machine(example("fail and succeed"), {"amount": -5}).state.fault == StepFault(
        "bad_amount", "Amount -5 is not positive."
    )


def test_a_cycle_ends_when_its_bound_is_spent():
    run = Machine(
        "initial_state: a\nfinal_states: [e]\nstates:\n"
        "  a: {agent: x, max_visits: 3, transitions: [{condition: 'output.go', to: a}, {to: e}]}\n  e:\n",
        agents={"x": lambda _: {"go": True}},
    )

    assert run.work().fault.code == "max_visits"
    assert [path for path, _ in run.asked] == ["a", "a~2", "a~3"]


def test_a_state_that_was_entered_too_often_is_no_error_to_be_routed():
    run = Machine(
        "initial_state: a\nfinal_states: [e]\nstates:\n"
        "  a: {agent: x, max_visits: 2, on_error: b, transitions: [{condition: 'output.go', to: a}, {to: e}]}\n"
        "  b: {agent: y, on_success: a}\n  e:\n",
        agents={"x": lambda _: {"go": True}},
    )

    assert run.work().fault.code == "max_visits"
    assert [path for path, _ in run.asked] == ["a", "a~2"], "what `on_error` leads to could come back for ever"


def test_each_iteration_may_enter_a_state_as_often_as_the_one_before():
    run = Machine(
        "initial_state: l\nfinal_states: [l]\nstates:\n"
        "  l:\n    loop:\n      max: 3\n      for: '${[1, 2, 3]}'\n      do:\n        initial_state: a\n"
        "        final_states: [a]\n        states: {a: {agent: x, max_visits: 1}}\n",
    )

    assert run.work().status == "completed"
    assert len(run.asked) == 3


def test_the_timeout_of_a_state_halts_everything_inside_of_it():
    inner = "{initial_state: in, final_states: [in], states: {in: {map: {over: [1, 2], do: {agent: x}}}}}"
    run = Machine(
        "initial_state: p\nfinal_states: [e]\nstates:\n"
        f"  p: {{parallel: {{branches: {{a: {{agent: x}}, b: {inner}}}}}, timeout: 1s, on_success: e, on_error: e}}\n"
        "  e:\n"
    )

    decision = run.time(2_000)

    assert sent(decision) == ["CancelStep p/a", "CancelStep p/b/in/0", "CancelStep p/b/in/1"]
    assert run.state.status is Status.COMPLETED


def test_the_higher_priority_is_tried_first():
    ways = "[{condition: 'true', to: low}, {condition: 'true', to: high, priority: 5}]"
    run = Machine(
        f"initial_state: a\nstates:\n  a: {{choice: {ways}}}\n  low: {{succeed: low}}\n  high: {{succeed: high}}\n"
    )

    assert run.state.output == "high"


def test_inside_of_a_map_each_item_sees_its_own_steps():
    body = "{initial_state: one, final_states: [two], states: {one: {agent: x, input: '${item}', on_success: two}, two: {agent: x, input: '${steps.one.output}'}}}"  # noqa: E501
    run = Machine(f"initial_state: m\nfinal_states: [m]\nstates:\n  m: {{map: {{over: [1, 2, 3], do: {body}}}}}\n")

    for path in ("m/2/one", "m/0/one", "m/1/one"):
        run.report(path, f"said {path}")
    for path in ("m/0/two", "m/1/two", "m/2/two"):
        run.report(path, run.state.in_flight[path].input)

    assert run.state.output["results"] == ["said m/0/one", "said m/1/one", "said m/2/one"]
    assert dict(run.state.memory.items()) == {}


def test_a_linear_machine_writes_no_more_events_than_its_steps_need():
    run = Machine("initial_state: a\nfinal_states: [b]\nstates:\n  a: {agent: x, on_success: b}\n  b: {agent: x}\n")

    assert types(run.last) == ["execution.started", "step.scheduled"]
    assert types(run.report("a")) == ["step.succeeded", "step.scheduled"]
    assert types(run.report("b")) == ["step.succeeded", "execution.completed"]
