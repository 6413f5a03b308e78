"""Each kind of node, alone: what it asks for, how it ends, what it halts."""

# ruff: noqa: E501 - a small tree reads best on one line

import pytest

from agentflow import limits
from agentflow.contracts.step import StepFault
from agentflow.execution.program import AskHuman, AwaitSignal, RunStep, StartChild, StartTimer, StepOutcome
from tests.unit.planners.behavior_tree.play import Play, compiled


def play(tree: str, given=None, subtrees: str = "", **options) -> Play:
    return Play(compiled(tree, subtrees), given, **options).begin()


# Actions and what they see.


def test_an_action_asks_for_its_step_and_its_output_is_the_executions():
    run = play(
        "action: {name: hello, agent: greeter, input: {who: '${input.who}'}, timeout: 20s, retry: {}}", {"who": "Mara"}
    )

    (step,) = run.open.values()
    assert (step.key, step.name, step.agent, step.input) == ("tree", "hello", "greeter", {"who": "Mara"})
    assert (step.timeout_ms, step.retry.max_attempts) == (20_000, 3)
    assert run.ok("hello", {"text": "hi"}).output == {"text": "hi"}


def test_a_failed_action_fails_the_execution_with_its_fault():
    assert play("action: {agent: a}").fail("a").fault == StepFault("boom", "It went wrong.")


def test_an_input_that_cannot_be_made_fails_the_action_without_a_step():
    run = play("action: {agent: a, input: '${input.missing}'}", {})

    assert (run.fault.code, run.asked) == ("expression_error", [])


def test_steps_are_named_after_their_agent_or_tool_and_numbered_where_that_is_taken():
    run = play(
        "parallel: [{action: {agent: a}}, {action: {tool: kb.search}}, {action: {agent: a}}, {action: {name: a_2, agent: a}}]"
    )

    assert run.steps == ["a", "kb_search", "a_3", "a_2"]


def test_output_is_that_of_the_step_before_in_the_sequence_whatever_runs_elsewhere():
    run = play("""
        parallel:
          - sequence: [{action: {name: a, agent: x}}, {condition: "output.n == 1"}, {action: {name: b, agent: x, input: "${n}"}}]
          - sequence: [{action: {name: c, agent: x}}, {action: {name: d, agent: x, input: "${output.n}"}}]
    """)
    run.ok("c", {"n": 2}).ok("a", {"n": 1})

    assert {ask.name: ask.input for ask in run.open.values()} == {"b": 1, "d": 2}


def test_a_later_child_sees_the_output_of_a_step_that_ended_many_ticks_before():
    run = play("""
        sequence:
          - selector: [{action: {name: a, agent: x}}, {action: {name: b, agent: x}}]
          - force_success: {invert: {action: {agent: p}}}
          - action: {name: last, agent: x, input: "${output}"}
    """)
    run.fail("a").ok("b", "from b").ok("p", "from p")

    assert run.find("last")[1].input == "from b"


def test_what_a_parallel_yields_are_the_outputs_of_the_children_that_succeeded():
    run = play("""
        sequence:
          - parallel:
              success: 3
              failure: 4
              children:
                - action: {agent: a}
                - action: {agent: b}
                - sequence: [{action: {agent: c}}, {parallel: [{action: {agent: d}}, {condition: "true"}]}]
                - condition: "true"
          - action: {name: last, agent: x, input: "${output}"}
    """)
    run.ok("c").fail("b").ok("a", 1).ok("d", 4)

    assert run.find("last")[1].input == {"a": 1, "2": {"d": 4}}
    assert run.ok("last", 5).output == 5


def test_what_came_to_a_named_signal_person_or_child_is_an_output_like_that_of_a_step():
    run = play("""
        sequence:
          - signal: {signal: go, name: told}
          - human: {title: "Sure, ${output.by}?", name: asked}
          - subworkflow: {workflow: other, name: done, input: "${steps.told.output.by}"}
          - action: {agent: a, input: ["${output}", "${steps.asked.output}", "${has(steps.other.output)}"]}
          - signal: {signal: never, name: other}
    """)

    assert run.ok("told", {"by": "mara"}).find("asked")[1].task["title"] == "Sure, mara?"
    assert run.ok("asked", True).find("done")[1].input == "mara"
    assert run.ok("done", {"n": 1}).find("a")[1].input == [{"n": 1}, True, False]
    assert run.ok("a", 1).ok("other", None).output is None


def test_what_came_to_a_named_signal_of_a_subtree_is_its_own():
    run = play(
        "sequence: [{subtree: {use: ask, name: one}}, {subtree: {use: ask, name: two}}]",
        subtrees="ask: {tree: {sequence: [{signal: {signal: go, name: s}}, {condition: 'steps.s.output.yes'}]}}",
    )

    assert run.ok("tree/one/ask/s", {"yes": True}).ok("tree/two/ask/s", {"yes": True, "n": 2}).output["n"] == 2


# Composites.


def test_a_sequence_goes_on_while_children_succeed_and_fails_with_the_first_that_fails():
    run = play("sequence: [{action: {agent: a}}, {action: {agent: b}}, {action: {agent: c}}]")

    assert run.ok("a").steps == ["b"]
    assert run.fail("b").fault.code == "boom"
    assert run.asked == ["tree/a", "tree/b"]


def test_a_selector_tries_until_one_succeeds_and_tells_the_next_why_the_last_failed():
    run = play("selector: [{action: {agent: a}}, {action: {agent: b, input: '${error.code}'}}, {action: {agent: c}}]")
    run.fail("a")

    assert run.find("b")[1].input == "boom"
    assert run.ok("b", 5).output == 5


def test_why_the_child_before_failed_is_known_in_later_ticks_too():
    run = play(
        "selector: [{action: {agent: a}}, {sequence: [{action: {agent: b}}, {action: {agent: c, input: '${error.message}'}}]}]"
    )
    run.fail("a").ok("b")

    assert run.find("c")[1].input == "It went wrong."


def test_a_selector_fails_with_the_fault_of_its_last_child():
    run = play("selector: [{action: {agent: a}}, {action: {agent: b}}]")

    assert run.fail("a").fail("b", StepFault("other", "No.")).fault.code == "other"


@pytest.mark.parametrize(
    ("options", "told", "ends"),
    [
        ("", "a b c", "s"),
        ("", "a !b", "f"),
        ("success: any,", "!a b", "s"),
        ("success: any,", "!a !b !c", "f"),
        ("success: 2,", "a !b c", "s"),
        ("success: 2,", "!a !b", "f"),
        ("success: 2, failure: 1,", "!a", "f"),
        ("success: 1, failure: 3,", "!a !b c", "s"),
        ("failure: 3,", "!a b c", "f"),
        ("failure: 3,", "!a !b", "r"),
    ],
)
def test_a_parallel_ends_at_its_thresholds_and_halts_the_rest(options, told, ends):
    run = play(
        f"parallel: {{{options} children: [{{action: {{agent: a}}}}, {{action: {{agent: b}}}}, {{action: {{agent: c}}}}]}}"
    )
    assert run.steps == ["a", "b", "c"]
    for word in told.split():
        run = run.fail(word[1:]) if word.startswith("!") else run.ok(word)

    status = "r" if run.ending is None else "f" if hasattr(run.ending, "fault") else "s"
    assert status == ends


def test_what_is_decided_before_it_was_asked_for_is_not_asked_for():
    run = play("parallel: {success: any, children: [{action: {agent: a}}, {condition: 'true'}]}")

    assert (run.output, run.asked) == (None, [])


def test_a_conditional_selector_takes_the_first_branch_that_holds_and_no_other():
    tree = """
        conditional_selector:
          - {when: input.n > 10, do: {action: {agent: big}}}
          - {when: input.n > 5, do: {action: {agent: middle}}}
          - {do: {action: {agent: small}}}
    """

    assert play(tree, {"n": 20}).steps == ["big"]
    assert play(tree, {"n": 7}).fail("middle").fault.code == "boom"
    assert play(tree, {"n": 1}).steps == ["small"]


def test_a_conditional_selector_without_a_branch_that_holds_fails():
    assert play("conditional_selector: [{when: 'false', do: {action: {agent: a}}}]").fault.code == "no_branch"


# Without memory: looking again.


REACTIVE = """
    {kind}:
      memory: false
      children:
        - sequence: [{{condition: "input.urgent"}}, {{action: {{agent: urgent}}}}]
        - sequence: [{{action: {{agent: a}}}}, {{action: {{agent: b}}}}]
"""


def test_a_selector_without_memory_leaves_for_a_better_child_and_halts_the_one_it_leaves():
    run = play(REACTIVE.format(kind="selector"), {"urgent": False})
    run.input = {"urgent": True}
    run.ok("a")

    assert run.steps == ["urgent"]
    assert run.halted == []  # `a` had ended: the tick that brought its outcome found something better to do
    assert run.ok("urgent", "done").output == "done"


def test_a_selector_with_memory_stays_where_it_is():
    run = play(REACTIVE.format(kind="selector").replace("memory: false", "memory: true"), {"urgent": False})
    run.input = {"urgent": True}

    assert run.ok("a").steps == ["b"]


def test_a_better_child_that_failed_is_not_done_again_and_again():
    run = play(REACTIVE.format(kind="selector"), {"urgent": True})

    assert run.fail("urgent").steps == ["a"]
    assert run.ok("a").steps == ["b"]
    assert run.ok("b").asked == ["tree/0/urgent", "tree/1/a", "tree/1/b"]


def test_a_sequence_without_memory_fails_when_what_held_before_no_longer_does():
    run = play(
        """
        sequence:
          memory: false
          children: [{condition: "input.on"}, {parallel: [{action: {agent: a}}, {action: {agent: b}}]}]
    """,
        {"on": True},
    )
    run.input = {"on": False}
    run.ok("a")

    assert run.fault.code == "condition"
    assert run.halted == ["tree/1/b"]


def test_what_is_halted_begins_anew_with_all_that_is_below_it():
    run = play(
        """
        parallel:
          - selector:
              memory: false
              children:
                - sequence: [{condition: "input.urgent"}, {action: {agent: urgent}}]
                - sequence: [{action: {agent: a}}, {action: {agent: b}}]
          - sequence: [{action: {agent: other}}, {action: {agent: last}}]
        """,
        {"urgent": False},
    )
    run.ok("a")
    run.input = {"urgent": True}
    run.ok("other")
    assert (run.steps, run.halted) == (["urgent", "last"], ["tree/0/1/b"])

    assert run.fail("urgent").steps == ["last", "a"]


def test_a_timer_is_an_occasion_to_look_again_too():
    run = play(
        """
        selector:
          memory: false
          children:
            - sequence: [{condition: "input.on"}, {action: {agent: x}}]
            - sequence: [{wait: 10s}, {action: {agent: y}}]
        """,
        {"on": False},
    )
    run.input = {"on": True}

    assert run.ok("tree/1/0").steps == ["x"]


def test_a_conditional_selector_without_memory_changes_its_branch():
    run = play(
        """
        parallel:
          - conditional_selector:
              memory: false
              branches: [{when: "input.up", do: {action: {agent: up}}}, {do: {action: {agent: down}}}]
          - action: {agent: other}
    """,
        {"up": True},
    )
    run.input = {"up": False}
    run.ok("other")

    assert (run.steps, run.halted) == (["down"], ["tree/0/up"])


def test_a_guard_halts_its_child_when_its_condition_fails():
    run = play(
        """
        parallel:
          success: any
          children:
            - guard: {when: "input.allowed", do: {action: {agent: a}}}
            - sequence: [{action: {agent: b}}, {action: {agent: c}}]
    """,
        {"allowed": True},
    )
    run.input = {"allowed": False}
    run.ok("b")

    assert (run.steps, run.halted) == (["c"], ["tree/0/a"])


def test_a_guard_that_does_not_hold_asks_for_nothing():
    run = play("guard: {when: 'input.n > 3', do: {action: {agent: a}}}", {"n": 1})

    assert (run.fault, run.asked) == (StepFault("guard", "`input.n > 3` does not hold."), [])


# Decorators.


@pytest.mark.parametrize(
    ("kind", "ok", "fault"), [("invert", None, "s"), ("force_success", 1, "s"), ("force_failure", None, "boom")]
)
def test_wrappers_turn_how_their_child_ended(kind, ok, fault):
    succeeded, failed = (
        play(f"{kind}: {{action: {{agent: a}}}}").ok("a", 1),
        play(f"{kind}: {{action: {{agent: a}}}}").fail("a"),
    )

    assert (succeeded.output if ok else succeeded.fault.code) == (
        ok or {"invert": "inverted"}.get(kind, "forced_failure")
    )
    assert (failed.output is None) if fault == "s" else failed.fault.code == fault


def test_a_retry_tries_a_whole_branch_again_and_each_round_begins_anew():
    run = play("retry: {attempts: 3, do: {sequence: [{action: {agent: a}}, {action: {agent: b}}]}}")

    run.ok("a").fail("b").ok("a").fail("b").fail("a")

    assert run.fault.code == "boom"
    assert run.asked == [f"tree/0/{name}" for name in "ababa"]


def test_a_retry_waits_between_rounds_if_told_to_and_waits_for_nothing_when_halted():
    run = play("timeout: {after: 1m, do: {retry: {attempts: 2, delay: 5s, do: {action: {agent: a}}}}}")
    run.fail("a")

    assert run.find("tree/0")[1] == StartTimer("tree/0", 6_000)
    assert run.ok("tree/0").steps == ["a"]
    again = play("timeout: {after: 1m, do: {retry: {attempts: 2, delay: 5s, do: {action: {agent: a}}}}}").fail("a")
    assert again.ok("tree").fault.code == "timeout"
    assert again.halted == ["tree/0"]


def test_a_pause_between_rounds_is_not_cut_short_by_what_happens_elsewhere():
    run = play(
        "parallel: [{retry: {attempts: 2, delay: 5s, do: {guard: {when: 'true', do: {action: {agent: a}}}}}}, {action: {agent: b}}, {action: {agent: c}}]"
    )
    run.fail("a").ok("b")

    assert run.steps == ["c"]
    assert run.ok("tree/0").steps == ["c", "a"]


def test_a_repeat_succeeds_when_all_rounds_have():
    run = play("repeat: {times: 3, do: {action: {agent: a}}}")

    assert run.ok("a", 1).ok("a", 2).ok("a", 3).output == 3
    assert play("repeat: {times: 3, do: {action: {agent: a}}}").ok("a").fail("a").fault.code == "boom"


def test_a_repeat_with_until_ends_when_it_holds_and_fails_at_its_bound():
    tree = "repeat: {times: 3, until: 'output.done', do: {action: {agent: a}}}"

    assert play(tree).ok("a", {"done": False}).ok("a", {"done": True}).output == {"done": True}
    never = play(tree).ok("a", {"done": False}).ok("a", {"done": False}).ok("a", {"done": False})
    assert never.fault == StepFault("bound_reached", "`output.done` does not hold after 3 rounds.")


def test_a_timeout_halts_all_below_it_and_its_timer_is_given_up_when_the_child_is_in_time():
    tree = "timeout: {after: 30s, do: {parallel: [{action: {agent: a}}, {action: {agent: b}}]}}"
    late = play(tree).ok("a").ok("tree")

    assert late.fault == StepFault("timeout", "Not done within 30s.")
    assert late.halted == ["tree/0/b"]
    assert play(tree).ok("a").ok("b").halted == ["tree"]


def test_a_cooldown_refuses_to_begin_again_too_soon_even_in_another_round():
    run = play("repeat: {times: 3, do: {force_success: {cooldown: {for: 10s, do: {action: {agent: a}}}}}}")
    run.now += 5_000
    run.ok("a")

    assert run.output is None
    assert run.asked == ["tree/0/0/a"]
    assert run.memory["tree/0/0#rest"] == 16_000


def test_after_its_rest_a_cooldown_lets_its_child_run():
    run = play("repeat: {times: 2, do: {sequence: [{cooldown: {for: 10s, do: {action: {agent: a}}}}, {wait: 10s}]}}")

    assert run.ok("a").ok("tree/0/1").steps == ["a"]


# Leaves that wait for something else.


def test_a_wait_asks_for_a_timer_and_succeeds_when_it_fires():
    run = play("sequence: [{wait: 90s}, {action: {agent: a}}]")

    assert run.find("tree/0")[1] == StartTimer("tree/0", 91_000)
    assert run.ok("tree/0").steps == ["a"]


def test_a_wait_until_a_moment_takes_it_from_an_expression():
    run = play("wait: {until: '${input.at}'}", {"at": "1970-01-01T01:00:00Z"})

    assert run.find("tree")[1] == StartTimer("tree", 3_600_000)
    assert play("wait: {until: '${input.at}'}", {"at": "tomorrow"}).fault.code == "not_a_moment"


def test_a_signal_a_child_and_a_task_are_asked_for_and_their_answers_are_taken():
    run = play(
        """
        sequence:
          - signal: {signal: approved, name: wait_for_it}
          - subworkflow: {workflow: other, version: ^1.2, input: {n: "${input.n}"}}
          - human: {title: "Is ${input.n} right?", assignees: [mara]}
    """,
        {"n": 7},
    )

    assert run.find("wait_for_it")[1] == AwaitSignal("tree/wait_for_it", "approved")
    assert run.ok("wait_for_it").find("tree/1")[1] == StartChild("tree/1", "other", "^1.2", {"n": 7})
    asked = run.ok("tree/1").find("tree/2")[1]
    assert asked == AskHuman("tree/2", {"title": "Is 7 right?", "instructions": "", "assignees": ["mara"]})
    assert run.ok("tree/2", {"yes": True}).output is None


def test_a_child_that_failed_is_a_failure_like_any_other():
    run = play("selector: [{subworkflow: other}, {action: {agent: a, input: '${error.code}'}}]")

    assert run.fail("tree/0").find("a")[1].input == "boom"


# Time-slicing.


def test_a_tree_of_more_nodes_than_a_tick_may_visit_goes_on_in_the_next():
    count = limits.TREE_NODES_PER_TICK * 2
    run = play("sequence:\n" + "\n".join("  - condition: 'true'" for _ in range(count)) + "\n  - action: {agent: a}")

    assert run.steps == []
    ticks = 1
    while "#slice" in run.open:
        assert run.open["#slice"] == StartTimer("#slice", run.now)
        run.ok("#slice")
        ticks += 1
    assert (run.steps, ticks) == (["a"], 3)
    assert run.ok("a", 1).output == 1


def test_a_tree_that_looks_at_more_conditions_than_a_tick_may_begin_nodes_still_gets_on():
    checks = "\n".join(f"    - condition: 'input.n > {at}'" for at in range(limits.TREE_NODES_PER_TICK * 2))
    steps = "    - sequence: [{action: {agent: a}}, {action: {agent: b}}, {action: {agent: c}}]"
    run = play(f"selector:\n  memory: false\n  children:\n{checks}\n{steps}", {"n": 0})
    while "#slice" in run.open:
        run.ok("#slice")

    assert run.ok("a").steps == ["b"]
    assert run.ok("b").steps == ["c"]
    assert run.ok("c", 7).output == 7


def test_a_wide_parallel_starts_over_several_ticks_and_every_child_once():
    count = limits.TREE_NODES_PER_TICK + 100
    run = play("parallel:\n" + "\n".join(f"  - action: {{name: s{at}, agent: a}}" for at in range(count)))

    assert len(run.steps) < limits.TREE_NODES_PER_TICK
    assert run.ok("#slice").steps == [f"s{at}" for at in range(count)]
    for at in range(count):
        run.ok(f"s{at}", at)
    assert run.output == {f"s{at}": at for at in range(count)}
    assert run.asked == [f"tree/s{at}" for at in range(count)]


def test_a_loop_over_nothing_but_conditions_does_not_hold_up_anybody():
    run = play(f"repeat: {{times: {limits.TREE_LOOPS_MAX}, do: {{condition: 'true'}}}}")
    while run.ending is None:
        run.ok("#slice")

    assert run.output is None
    assert run.ticks >= limits.TREE_LOOPS_MAX / limits.TREE_NODES_PER_TICK


def test_an_outcome_that_comes_between_two_slices_is_not_lost():
    count = limits.TREE_NODES_PER_TICK * 2
    conditions = "\n".join("      - condition: 'true'" for _ in range(count))
    run = play(f"parallel:\n  - action: {{agent: a}}\n  - sequence:\n{conditions}\n      - action: {{agent: b}}")

    assert set(run.open) == {"tree/a", "#slice"}
    run.ok("a", 1)
    while "#slice" in run.open:
        run.ok("#slice")
    assert run.steps == ["b"]


def test_a_tree_that_decides_between_two_slices_gives_up_the_next_slice():
    conditions = "\n".join("      - condition: 'true'" for _ in range(limits.TREE_NODES_PER_TICK * 2))
    run = play(f"parallel:\n  success: any\n  children:\n  - action: {{agent: a}}\n  - sequence:\n{conditions}")

    assert run.ok("a", 1).halted == ["#slice"]
    assert run.ending is not None


def test_a_latecomer_changes_nothing():
    program = compiled("sequence: [{action: {agent: a}}, {action: {agent: b}}]")
    run = Play(program).begin().ok("a")

    for late in ("tree/a", "tree/nowhere", "#slice"):
        assert program.advance(run.view(), StepOutcome(late, "a", 1)) == ()
    assert isinstance(run.open["tree/b"], RunStep)
