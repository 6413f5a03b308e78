"""The support template: each ticket on its path, by the real program and the real functions."""

import importlib.util
import json
from pathlib import Path

import pytest

from agentflow.contracts.step import StepFault
from agentflow.execution.events import WorkflowRef
from agentflow.execution.program import Finish, RunStep, RunView, StepOutcome
from planners.kinds import compile_workflow
from worker.agents_file import read_agents_file

FOLDER = Path("templates/support")
TICKETS = {ticket["name"]: ticket["input"] for ticket in json.loads((FOLDER / "tickets.json").read_text())}


def module(name: str):
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


@pytest.fixture(scope="module")
def workflow():
    return compile_workflow((FOLDER / "workflow.yaml").read_text())


@pytest.fixture(scope="module")
def functions():
    """What agents.yaml names, by agent or tool."""
    file = read_agents_file(FOLDER / "agents.yaml")
    calls = {name: spec.call for name, spec in (file.agents | file.tools).items()}
    return {name: getattr(module(call.split(":")[0]), call.split(":")[1]) for name, call in calls.items()}


@pytest.fixture
def walk(workflow, functions):
    """Runs a ticket to its end; `broken` names a state whose step fails. Gives the path and the final output."""

    def walked(input: dict, broken: str | None = None) -> tuple[list[str], dict]:
        path: list[str] = []
        outputs: dict = {}
        ref = WorkflowRef("wf_1", "support", "1.0.0", workflow.digest)
        (intent,) = workflow.program.begin(RunView(input, outputs, ref, {}, {}, at_ms=0, chance=0.5))
        while isinstance(intent, RunStep):
            path.append(intent.name)
            output, fault = None, None
            if intent.name == broken:
                fault = StepFault("tool_error", "broken for a test")
            else:
                output = functions[intent.tool or intent.agent](intent.input)
                outputs = outputs | {intent.name: output}
            (intent,) = workflow.program.advance(
                RunView(input, outputs, ref, {}, {}, at_ms=0, chance=0.5),
                StepOutcome(path[-1], path[-1], output, fault),
            )
        assert isinstance(intent, Finish)
        return path, intent.output

    return walked


def test_the_three_tickets_take_three_different_ways_to_an_end(walk):
    ends = {name: walk(ticket) for name, ticket in TICKETS.items()}

    assert {name: path for name, (path, _) in ends.items()} == {
        "answered from the knowledge base": ["classify", "knowledge_search", "respond"],
        "escalated: nobody could be sure what it is about": ["classify", "escalate"],
        "escalated: no article answers it": ["classify", "knowledge_search", "escalate"],
    }
    answered, unsure, unanswered = (output for _, output in ends.values())
    assert (answered["status"], answered["article"]) == ("answered", "Reset a forgotten password")
    assert "valid for 60 minutes" in answered["reply"]
    assert (unsure["status"], unsure["queue"]) == ("escalated", "triage")
    assert (unanswered["status"], unanswered["queue"]) == ("escalated", "integrations")


@pytest.mark.parametrize("mood", ["This is unacceptable!", "My lawyer will hear of this."])
def test_an_angry_or_legal_ticket_goes_to_a_person_however_clear_it_is(walk, mood):
    path, output = walk({"customer": "Mara", "ticket": f"I was charged twice, refund my card payment. {mood}"})

    assert path == ["classify", "escalate"]
    assert output["queue"] == "urgent"


@pytest.mark.parametrize("broken", ["classify", "knowledge_search"])
def test_a_step_that_fails_ends_in_the_fallback(walk, broken):
    path, output = walk(TICKETS["answered from the knowledge base"], broken)

    assert path[-2:] == [broken, "fallback"]
    assert output["status"] == "fallback"


@pytest.mark.parametrize(
    ("question", "title"),
    [
        ("I was charged twice for one invoice, refund please", "Refunds: when and how"),
        ("the tracking shows no movement and my parcel has not arrived", "Track a delivery that has not arrived"),
        ("please change my delivery address", "Change the delivery address of an order"),
        ("I want to change the email of my account", "Change the email address of your account"),
        ("how do I cancel my subscription", "Cancel or pause a subscription"),
        ("lost my phone, two-factor sign-in asks for a code", "Two-factor sign-in and lost phones"),
        ("correct the VAT number on my invoice", "Find and correct an invoice"),
    ],
)
def test_a_question_finds_its_article_first(functions, question, title):
    articles = functions["kb.search"]({"query": question})["articles"]

    assert articles[0]["title"] == title


def test_a_question_beside_the_point_finds_nothing(functions):
    assert functions["kb.search"]({"query": "What is the weather like in Lisbon?"}) == {"articles": []}


def test_the_threshold_in_the_code_is_the_one_of_the_workflow():
    bound = module("support_agents").SURE

    assert f"confidence >= {bound}" in (FOLDER / "workflow.yaml").read_text()


def test_every_agent_and_tool_of_the_workflow_is_hosted(workflow, functions):
    states = workflow.workflow.spec.fsm.states.values()

    assert {state.agent or state.tool for state in states} == set(functions)
