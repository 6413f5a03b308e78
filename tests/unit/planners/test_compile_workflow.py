"""The way in: one definition, every problem at once, each in its place."""

# ruff: noqa: E501 - a row of a table is one line

import io
import json
import sys
import time
from textwrap import dedent

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentflow.errors import Problem
from agentflow.workflow.load import InvalidWorkflow
from planners import __main__ as command
from planners.kinds import compile_workflow

SUPPORT = dedent(
    """\
    apiVersion: agentflow/v1
    kind: Workflow
    metadata: {name: support, version: 1.0.0, tags: [support]}
    spec:
      planner: fsm
      input: {type: object, required: [ticket], additionalProperties: false, properties: {ticket: {type: string}}}
      timeout: 10m
      fsm:
        initial_state: classify
        final_states: [send_response, escalate]
        states:
          classify:
            agent: classifier
            input: {text: "${input.ticket}"}
            output: {type: object, additionalProperties: false, properties: {confidence: {type: number}, kind: {type: string}}}
            timeout: 20s
            retry: {max_attempts: 3, initial: 200ms, multiplier: 2, max: 5s, jitter: full}
            transitions:
              - {condition: "output.confidence >= 0.8", to: knowledge_search}
              - to: escalate
                condition: |
                  kind == 'legal'
                    || kind == 'press'
              - to: send_response
            on_error: fallback_response
          knowledge_search: {tool: kb.search, input: {query: "${input.ticket}"}, on_success: generate_response, on_error: fallback_response}
          generate_response:
            agent: writer
            input: {found: "${items}", kind: '${steps.classify.output.kind}'}
            on_success: send_response
          fallback_response: {agent: writer, input: {reason: "Sorry: ${error.message}"}, on_success: send_response}
          send_response: {agent: mailer, input: {body: "${output.body}"}}
          escalate:
    """
)


def problems_of(text: str) -> list[Problem]:
    with pytest.raises(InvalidWorkflow) as caught:
        compile_workflow(text)
    return list(caught.value.problems)


def test_the_workflow_of_the_design_compiles():
    compiled = compile_workflow(SUPPORT)

    assert compiled.workflow.metadata.name == "support"
    assert compiled.document.data["spec"]["timeout"] == "10m"


# Each row puts one fault into the workflow above; `▲` stands before the place that the problem must name.
@pytest.mark.parametrize(
    ("old", "new", "message", "hint"),
    [
        ('"output.confidence >= 0.8"', '"output.▲confidnce >= 0.8"', "`output` has no field `confidnce`.", "Did you mean `confidence`?"),
        ('"output.confidence >= 0.8"', "'kind ▲>= 0.8'", "`>=` does not take (string, double).", "Check the types"),
        ('"output.confidence >= 0.8"', "▲kind", "A condition must be true or false; this is of type string.", "Compare"),
        ('"output.confidence >= 0.8"', '"output.confidence >=▲"', "The expression ends too early.", "Complete"),
        ('"output.confidence >= 0.8"', '"▲confidenc >= 0.8"', "The previous step's output has no field `confidenc`.", "`confidence`"),
        ('"output.confidence >= 0.8"', '"$.output.confidence ▲>= 0.8"', "The path is not valid", "Compare in CEL"),
        ('"output.confidence >= 0.8"', '"▲${output.confidence >= 0.8}"', "A condition is an expression already.", "without"),
        ('"output.confidence >= 0.8"', '"steps.▲clasify.output.kind == \'x\'"', "There is no step `clasify`.", "`classify`"),
        ('"output.confidence >= 0.8"', '"steps.▲escalate.output == 1"', "There is no step `escalate`.", "steps"),
        ('"output.confidence >= 0.8"', '"▲error.code == \'x\'"', "There is no `error` here.", "on_error"),
        ('"output.confidence >= 0.8"', '"\\"é\\" == ▲confidenc"', "has no field `confidenc`", "`confidence`"),
        ('"output.confidence >= 0.8"', "'''a'' == ▲confidenc'", "has no field `confidenc`", "`confidence`"),
        ("|| kind == 'press'", "|| ▲knd == 'press'", "has no field `knd`", "`kind`"),
        ("kind == 'legal'", "kind ▲== 12", "`==` does not take (string, int).", "types"),
        ('text: "${input.ticket}"', 'text: "${input.▲tickt}"', "`input` has no field `tickt`.", "`ticket`"),
        ('text: "${input.ticket}"', 'text: "${▲ticket}"', "There is no `ticket` here: no step comes before.", "`input.ticket`"),
        ('text: "${input.ticket}"', 'text: "Ticket ▲${input.ticket"', "This `${` is never closed.", "$${"),
        ('text: "${input.ticket}"', 'text: "${▲error.code}"', "There is no `error` here.", "on_error"),
        ("${steps.classify.output.kind}", "${steps.classify.output.▲kinds}", "`steps.classify.output` has no field `kinds`.", "`kind`"),
        ("${error.message}", "${error.▲mesage}", "`error` has no field `mesage`.", "`message`"),
        ("${items}", "a ${items + ▲}", "The expression ends too early.", "Complete"),
        ("${output.body}", "${▲bytes(output.body)}", "gives a bytes, which JSON does not have", "string("),
        ("to: escalate", "to: ▲escalte", "There is no state `escalte`.", "Did you mean `escalate`?"),
        ("[send_response, escalate]", "[send_response, ▲escalade]", "There is no state `escalade`.", "Did you mean `escalate`?"),
        ("initial_state: classify", "initial_state: ▲clasify", "There is no state `clasify`.", "`classify`"),
        ("      escalate:\n", "      escalate:\n      ▲lost: {agent: a, on_success: escalate}\n", "State `lost` can never be reached.", "lead"),
        ("- to: send_response", "- {to: send_response, condition: '▲'}", "The expression is empty.", "CEL"),
        ("- to: send_response", "- {to: send_response, condition: ▲true}", "must be text, not true or false", "quotes"),
        ("timeout: 20s", "timeout: ▲never", "`never` is not a duration.", "unit"),
        ("jitter: full", "▲jiter: full", "`jiter` is not a key of `spec.fsm.states.classify.retry`.", "Did you mean `jitter`?"),
        ("planner: fsm", "planner: fsm\n  ▲colour: red", "`colour` is not a key of `spec`.", "Known keys"),
        ("      escalate:\n", "      escalate:\n      ▲escalate: {}\n", "`escalate` is written twice.", "already"),
        ("tags: [support]", "tags: ▲!!seq [a]", "Tags are not supported", "plain"),
    ],
)  # fmt: skip
def test_each_malformed_definition_gets_its_place_and_its_cure(old, new, message, hint):
    assert old in SUPPORT
    text = SUPPORT.replace(old, new, 1)
    before, _, after = text.partition("▲")

    found = problems_of(before + after)

    assert len(found) == 1, [str(problem) for problem in found]
    assert (found[0].line, found[0].column) == (before.count("\n") + 1, len(before) - before.rfind("\n"))
    assert message in found[0].message
    assert hint in found[0].hint


def test_problems_of_shape_structure_and_expressions_come_together():
    broken = (
        SUPPORT.replace("20s", "soon")
        .replace("to: escalate", "to: escalte")
        .replace("input.ticket}", "input.tickt}", 1)
        .replace("version: 1.0.0", "version: one")
    )

    assert [(problem.line, problem.message) for problem in problems_of(broken)] == [
        (3, "`one` is not a semantic version."),
        (14, "`input` has no field `tickt`."),
        (16, "`soon` is not a duration."),
        (20, "There is no state `escalte`."),
    ]


def test_a_misspelt_key_is_one_problem_and_not_all_that_follows_from_it():
    assert [problem.message for problem in problems_of(SUPPORT.replace("on_error:", "on_eror:", 1))] == [
        "`on_eror` is not a key of `spec.fsm.states.classify`."
    ]


def test_a_misspelt_error_target_does_not_take_error_away():
    found = problems_of(SUPPORT.replace("on_error: fallback_response", "on_error: falback_response"))

    assert {problem.message for problem in found} == {"There is no state `falback_response`."}


def test_compiling_is_deterministic():
    first, second = compile_workflow(SUPPORT), compile_workflow(SUPPORT)
    broken = SUPPORT.replace("kind", "knid").replace("escalate", "esc")

    assert first.digest == second.digest
    assert first.workflow == second.workflow
    assert [problems_of(broken) for _ in range(3)] == [problems_of(broken)] * 3


def test_a_json_definition_is_the_same_workflow():
    compiled = compile_workflow(SUPPORT)

    assert compile_workflow(json.dumps(compiled.document.data)).digest == compiled.digest


@given(st.data())
def test_a_mutilated_definition_never_raises_anything_else(data):
    start = data.draw(st.integers(0, len(SUPPORT)))
    end = data.draw(st.integers(start, min(len(SUPPORT), start + 30)))
    put = data.draw(st.text(alphabet="ab:-[]{}&*!|>'\"\n #1.~$\r\x85\u2028", max_size=6))

    problems: tuple[Problem, ...] = ()
    try:
        compile_workflow(SUPPORT[:start] + put + SUPPORT[end:])
    except InvalidWorkflow as invalid:
        problems = invalid.problems

    assert all(problem.line and problem.column and problem.message and problem.hint for problem in problems)


def test_the_problems_of_a_hostile_definition_cost_no_more_than_are_shown():
    bad = " ".join(f"${{steps.x{number}.output}}" for number in range(200))
    states = "".join(f"      s{number}: {{agent: a, input: '{bad}', on_success: escalate}}\n" for number in range(45))

    begun = time.perf_counter()
    found = problems_of(SUPPORT + states)

    assert len(found) == 50
    assert time.perf_counter() - begun < 5


def test_more_expressions_than_a_request_can_compile_are_refused():
    many = ", ".join(["'${input.ticket}'"] * 10_001)

    (problem,) = problems_of(SUPPORT.replace('{text: "${input.ticket}"}', f"[{many}]"))

    assert "expressions; 10000 are allowed" in problem.message


def test_the_largest_machine_compiles_within_seconds():
    states = "".join(
        f"      s{at}: {{agent: a, input: '${{input.x}}', transitions: [{{condition: output.ok, to: s{at + 1}}}, {{to: end}}]}}\n"
        for at in range(1_998)
    )
    head = (
        "apiVersion: agentflow/v1\nkind: Workflow\nmetadata: {name: m, version: 1.0.0}\nspec:\n  planner: fsm\n  fsm:\n"
    )
    text = f"{head}    initial_state: s0\n    final_states: [end]\n    states:\n{states}      s1998: {{agent: a, on_success: end}}\n      end:\n"

    begun = time.process_time()  # not by the clock on the wall: others use this machine too
    compile_workflow(text)

    assert time.process_time() - begun < 10


@pytest.mark.parametrize(
    ("raw", "arguments", "code", "said"),
    [
        (SUPPORT.encode(), [], 0, "support 1.0.0 is valid (digest "),
        (SUPPORT.replace("20s", "soon").encode(), [], 2, "  16:18: `soon` is not a duration. ("),
        (b"a: \xff", [], 2, "  1:4: This is not UTF-8 text. (Save the file as UTF-8.)"),
    ],
)
def test_the_command_tells_people_what_is_wrong(raw, arguments, code, said, monkeypatch, capsysbinary):
    monkeypatch.setattr(sys, "argv", ["planners", *arguments])
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(raw)))

    assert command.main() == code
    assert said in capsysbinary.readouterr().out.decode()


@pytest.mark.parametrize("valid", [True, False])
def test_the_command_tells_programs_the_same_as_json(valid, monkeypatch, capsysbinary):
    text = SUPPORT if valid else SUPPORT.replace("20s", "soon")
    monkeypatch.setattr(sys, "argv", ["planners", "--json"])
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))

    code = command.main()
    answer = json.loads(capsysbinary.readouterr().out)

    assert code == (0 if valid else 2)
    assert set(answer) == {"ok", "name", "version", "digest", "problems", "plan_hash", "shape"}
    assert answer["ok"] is valid
    if valid:
        assert (answer["name"], answer["version"], len(answer["digest"])) == ("support", "1.0.0", 64)
    else:
        assert set(answer["problems"][0]) == {"message", "hint", "line", "column", "path"}
        assert answer["problems"][0]["path"] == "spec.fsm.states.classify.timeout"
