"""The pages about expressions are true: every line of every table is run from the page, on both engines."""

import json
import re
from pathlib import Path

import pytest

from agentflow.contracts.step import StepFault
from agentflow.execution.events import WorkflowRef
from agentflow.ids import WorkflowId
from planners.expressions import engine_google
from planners.expressions.conditions import compile_condition
from planners.expressions.engine_celpy import run as engine_celpy
from planners.expressions.evaluate import compile_expression
from planners.expressions.scope import Facts, Scope
from planners.expressions.shapes import ANYTHING, shape_of
from planners.expressions.templates import compile_template

GUIDES = Path(__file__).parents[3] / "docs" / "guides"
WORKFLOW = WorkflowRef(WorkflowId("wf_1"), "support", "1.0.0", "digest")
SECTIONS_CLAIMED = (
    "Literals", "Integers", "Doubles", "Equality", "Order", "Logic", "Fields and items", "has", "in", "Macros",
    "Strings", "Lists and objects", "Conversions", "Times",
)  # fmt: skip


class Page:
    def __init__(self, name: str) -> None:
        self.text = (GUIDES / name).read_text()
        data = self._block("facts") or {}
        error = data.get("error")
        self.facts = Facts(
            data.get("input"),
            data.get("output"),
            data.get("steps", {}),
            WORKFLOW,
            None if error is None else StepFault(**error),
            vars=data.get("vars", {}),
            env=data.get("env", {}),
            locals=data.get("locals", {}),
        )
        self.scope = Scope(
            steps={"classify": ANYTHING, "later": ANYTHING},
            has_error=error is not None,
            env=list(self.facts.env),
            locals=dict.fromkeys(self.facts.locals, ANYTHING),
        )
        self.schema = self._block("schema")

    def _block(self, label: str):
        found = re.search(rf"```json {label}\n(.*?)```", self.text, re.DOTALL)
        return None if found is None else json.loads(found[1])

    def rows(self, first: str, second: str) -> list[tuple[str, str]]:
        """The lines of every table with this head."""
        rows, inside = [], False
        for line in self.text.splitlines():
            cells = [cell.replace("\\|", "|").strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            if cells == [first, second]:
                inside = True
            elif not line.startswith("|"):
                inside = False
            elif inside and not line.startswith("|---"):
                rows.append((unquoted(cells[0]), cells[1]))
        return rows


def unquoted(cell: str) -> str:
    marks = "``" if cell.startswith("``") else "`"
    assert cell.startswith(marks), cell
    assert cell.endswith(marks), cell
    text = cell[len(marks) : -len(marks)]
    return text.rstrip() if marks == "``" else text


PAGES = [Page("expressions.md"), Page("cel-conformance.md")]


def cases(first: str, second: str):
    return pytest.mark.parametrize(
        ("page", "text", "expected"),
        [pytest.param(page, *row, id=row[0][:60]) for page in PAGES for row in page.rows(first, second)],
    )


both_engines = pytest.mark.parametrize("engine", [engine_google, engine_celpy], ids=["google", "celpy"])


def check_result(result, expected: str) -> None:
    if expected.startswith("fails: "):
        assert isinstance(result, StepFault), result
        assert result.code == "expression_error"
        assert result.message.endswith(f"cannot be evaluated: {expected.removeprefix('fails: ')}.")
    else:
        value = json.loads(unquoted(expected))
        assert result == value
        assert json.dumps(result) == json.dumps(value), "1 and true and 1.0 are not the same"


@both_engines
@cases("expression", "gives")
def test_an_expression_gives_what_the_page_says(page, text, expected, engine):
    expression, checked = compile_expression(text, page.scope, engine)

    assert checked.faults == ()
    check_result(expression.value(page.facts), expected)


@both_engines
@cases("condition", "holds")
def test_a_condition_holds_as_the_page_says(page, text, expected, engine):
    expression, faults = compile_condition(text, page.scope, engine)

    assert faults == []
    check_result(expression.holds(page.facts), expected)


@both_engines
@cases("template", "gives")
def test_a_template_gives_what_the_page_says(page, text, expected, engine):
    template, faults = compile_template(json.loads(text), page.scope, engine=engine)

    assert faults == []
    check_result(template.render(page.facts), expected)


@both_engines
@cases("expression", "refused because")
def test_an_expression_is_refused_as_the_page_says(page, text, expected, engine):
    expression, checked = compile_expression(text, Scope(input=shape_of(page.schema)), engine)

    assert expression is None
    assert expected in " ".join(f"{fault.message} {fault.hint}" for fault in checked.faults)


@both_engines
@cases("condition", "refused because")
def test_a_condition_is_refused_as_the_page_says(page, text, expected, engine):
    expression, faults = compile_condition(text, Scope(input=shape_of(page.schema)), engine)

    assert expression is None
    assert expected in " ".join(f"{fault.message} {fault.hint}" for fault in faults)


def test_the_pages_hold_what_they_promise():
    guide, conformance = PAGES

    assert len(conformance.rows("expression", "gives")) >= 240
    assert re.findall(r"^## (.*)$", conformance.text, re.MULTILINE) == list(SECTIONS_CLAIMED)
    assert {"expression", "condition", "template"} == set(
        re.findall(r"^\| (\w+) \| (?:gives|holds)", guide.text, re.MULTILINE)
    )
    assert len(guide.rows("expression", "refused because")) >= 25
