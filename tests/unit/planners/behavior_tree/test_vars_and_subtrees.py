"""The blackboard is `vars`; a subtree is a world of its own with parameters."""

# ruff: noqa: E501 - a small tree reads best on one line

from agentflow import limits
from agentflow.contracts.step import StepFault
from tests.unit.planners.behavior_tree.play import Play, compiled


def play(tree: str, given=None, subtrees: str = "", **options) -> Play:
    return Play(compiled(tree, subtrees), given, **options).begin()


def test_an_action_writes_to_the_blackboard_and_others_read_it():
    run = play("""
        sequence:
          - action: {agent: a, vars: {score: "${output.score}", twice: "${score * 2}"}}
          - condition: vars.score > 3
          - action: {agent: b, input: "${vars.twice}"}
    """)
    run.ok("a", {"score": 5})

    assert run.vars == {"score": 5, "twice": 10}
    assert run.find("b")[1].input == 10


def test_set_is_seen_at_once_by_what_comes_after_it():
    run = play(
        "sequence: [{set: {n: '${input.n + 1}'}}, {set: {n: '${vars.n * 2}'}}, {action: {agent: a, input: '${vars.n}'}}]",
        {"n": 1},
    )

    assert run.find("a")[1].input == 4


def test_a_variable_that_was_not_set_yet_is_a_fault_that_a_selector_can_handle():
    run = play("selector: [{condition: vars.later}, {action: {agent: a, input: '${error.code}', vars: {later: true}}}]")

    assert run.find("a")[1].input == "expression_error"


def test_variables_may_be_given_a_value_before_anything_happens():
    run = Play(
        compiled("action: {agent: a, input: '${vars.tries + 1}'}", spec="  vars: {tries: 2, other: null}\n")
    ).begin()

    assert run.vars == {"tries": 2, "other": None}
    assert run.find("a")[1].input == 3


def test_the_payload_of_a_signal_and_the_answer_of_a_person_go_to_the_blackboard():
    run = play("""
        sequence:
          - signal: {signal: approved, vars: {by: "${output.by}"}}
          - human: {title: Sure?, vars: {sure: "${output.yes}"}}
          - subworkflow: {workflow: other, vars: {total: "${total}"}}
    """)
    run.ok("tree/0", {"by": "Mara"}).ok("tree/1", {"yes": True}).ok("tree/2", {"total": 3})

    assert run.vars == {"by": "Mara", "sure": True, "total": 3}


def test_vars_that_cannot_be_made_fail_the_action_and_set_nothing():
    run = play("action: {agent: a, vars: {x: '${output.x}', y: '${output.y}'}}").ok("a", {"x": 1})

    assert run.fault.code == "expression_error"
    assert run.vars == {}


def test_a_variable_set_in_one_branch_is_noticed_by_a_guard_in_another_in_the_same_tick():
    run = play("""
        sequence:
          - set: {stop: false}
          - parallel:
              success: any
              children:
                - guard: {when: "!vars.stop", do: {action: {agent: long}}}
                - sequence: [{action: {agent: check}}, {set: {stop: true}}, {action: {agent: after}}]
    """)
    run.ok("check")

    assert (run.steps, run.halted) == (["after"], ["tree/1/0/long"])
    assert list(run.open) == ["tree/1/1/after"], "one more look is enough"


def test_one_more_look_does_not_hear_the_same_outcome_again():
    run = play("""
        sequence:
          - set: {n: 0}
          - retry:
              attempts: 3
              do:
                sequence:
                  - set: {n: "${vars.n + 1}"}
                  - timeout:
                      after: 10s
                      do: {selector: {memory: false, children: [{condition: "vars.n > 9"}, {action: {agent: long}}]}}
    """)

    run.ok("tree/1/0/1")

    assert run.vars["n"] == 2, "the timer of the first attempt has not ended the second"
    assert sorted(run.open) == ["tree/1/0/1", "tree/1/0/1/0/long"]


def test_a_tree_that_goes_on_and_on_without_waiting_is_stopped(monkeypatch):
    monkeypatch.setattr(limits, "TREE_SLICES_MAX", 20)
    tree = """
        sequence:
          - set: {n: 0}
          - repeat:
              times: 10000
              do:
                repeat:
                  times: 10000
                  do: {set: {n: "${vars.n + 1}"}}
    """
    run = play(tree)
    while run.ending is None:
        run.ok("#slice")

    assert run.fault == StepFault("no_progress", "The tree went on for 20 ticks without waiting for anything.")


CHECK = """
check:
  params: [host, port]
  tree:
    sequence:
      - action: {name: probe, agent: prober, input: "${host}:${port}"}
      - condition: "steps.probe.output.up"
      - action: {name: mark, agent: marker, input: {host: "${host}", ms: "${steps.probe.output.ms}"}}
"""


def test_a_subtree_sees_its_parameters_and_its_own_steps():
    run = play(
        """
        sequence:
          - action: {name: probe, agent: x}
          - subtree: {use: check, with: {host: "${output.host}", port: 80}}
    """,
        subtrees=CHECK,
    )
    run.ok("probe", {"host": "a", "up": False})

    assert run.find("check/probe")[1].input == "a:80"
    run.ok("check/probe", {"up": True, "ms": 3})
    assert run.find("check/mark")[1].input == {"host": "a", "ms": 3}
    assert run.ok("check/mark", "marked").output == "marked"


def test_two_uses_of_a_subtree_do_not_see_each_other():
    run = play(
        """
        parallel:
          - subtree: {use: check, with: {host: a, port: 1}}
          - subtree: {use: check, with: {host: b, port: 2}}
    """,
        subtrees=CHECK,
    )
    run.ok("check/probe", {"up": True, "ms": 1}).ok("check_2/probe", {"up": True, "ms": 2})

    assert [ask.input for ask in run.open.values()] == [{"host": "a", "ms": 1}, {"host": "b", "ms": 2}]


def test_a_parameter_keeps_the_value_it_had_when_the_subtree_was_entered():
    run = play(
        """
        sequence:
          - set: {host: first}
          - parallel:
              - subtree: {use: check, with: {host: "${vars.host}", port: 1}}
              - sequence: [{action: {agent: other}}, {set: {host: second}}]
    """,
        subtrees=CHECK,
        resume=True,
    )
    run.ok("other").ok("check/probe", {"up": True, "ms": 1})

    assert run.find("check/mark")[1].input["host"] == "first"


def test_a_subtree_in_a_subtree_has_a_longer_name():
    both = (
        CHECK
        + """
outer:
  tree:
    retry: {attempts: 2, do: {subtree: {use: check, name: inner, with: {host: z, port: 9}}}}
"""
    )
    run = play("subtree: outer", subtrees=both)

    assert run.steps == ["outer/inner/probe"]
    assert run.fail("outer/inner/probe").steps == ["outer/inner/probe"]
