import pytest

from agentflow.clock import parse_rfc3339, rfc3339
from agentflow.contracts.usage import Usage
from agentflow.ids import TenantId
from control_plane.costs.budget import Budget, BudgetUsedUp, Used, problems, used_by

NOW = parse_rfc3339("2026-11-18T21:15:00Z")  # a Wednesday


def budget(**given) -> Budget:
    usual = {
        "tenant": TenantId("acme"), "id": "bud_1", "scope": "tenant", "name": "", "period": "day",
        "microdollars": 1_000_000, "tokens": None, "on_exceed": "stop", "warn_at_percent": 80, "created_at_ms": 5,
    }  # fmt: skip
    return Budget(**{**usual, **given})


@pytest.mark.parametrize(
    ("period", "began", "ends"),
    [
        ("day", "2026-11-18T00:00:00.000Z", "2026-11-19T00:00:00.000Z"),
        ("week", "2026-11-16T00:00:00.000Z", "2026-11-23T00:00:00.000Z"),
        ("month", "2026-11-01T00:00:00.000Z", "2026-12-01T00:00:00.000Z"),
    ],
)
def test_a_period_begins_at_midnight_utc_and_ends_where_the_next_begins(period, began, ends):
    of = budget(period=period)

    assert (rfc3339(of.began_ms(NOW)), rfc3339(of.ends_ms(NOW))) == (began, ends)
    assert of.began_ms(of.ends_ms(NOW)) == of.ends_ms(NOW)
    assert of.began_ms(of.ends_ms(NOW) - 1) == of.began_ms(NOW)


def test_a_total_counts_from_when_it_was_made_and_never_ends():
    assert (budget(period="total").began_ms(NOW), budget(period="total").ends_ms(NOW)) == (5, None)


def test_the_nearer_of_two_limits_decides_how_it_stands():
    both = budget(tokens=100)

    assert both.state(Used(0, 79)) == "ok"
    assert both.state(Used(0, 80)) == "warned"
    assert both.state(Used(999_999, 0)) == "warned"
    assert both.state(Used(1_000_000, 0)) == both.state(Used(0, 100)) == "exhausted"
    assert both.stops(Used(0, 100))
    assert not budget(on_exceed="warn").stops(Used(2_000_000, 0))
    assert budget(microdollars=0).state(Used()) == "exhausted", "nothing may be spent at all"


def test_a_budget_counts_what_its_scope_covers():
    used = Usage("model x", 10, "writer", input=3)

    assert budget().counts("support", used)
    assert budget(scope="workflow", name="support").counts("support", used)
    assert not budget(scope="workflow", name="report").counts("support", used)
    assert budget(scope="agent", name="writer").counts("support", used)
    assert not budget(scope="agent", name="reader").counts("support", used)


def test_a_price_that_nobody_knows_is_counted_apart_and_never_as_nought():
    assert used_by(Usage("model local", None, "writer", input=7)) == Used(0, 7, 1)
    assert used_by(Usage("model x", 0, "writer")) == Used(0, 0, 0)


def test_what_is_used_up_names_the_budget_its_limit_what_is_spent_and_what_to_do():
    refusal = BudgetUsedUp(budget(period="month", tokens=50), Used(1_200_000, 9), NOW)

    assert "bud_1 (month of tenant)" in refusal.message
    assert "1.200000 of 1.000000 dollars and 9 of 50 tokens" in refusal.message
    assert "af budgets update bud_1" in refusal.hint
    assert "2026-12-01" in refusal.hint


def test_a_budget_without_a_limit_or_with_the_wrong_name_is_refused():
    assert problems(budget()) == []
    assert problems(budget(microdollars=None)) == ["it limits neither dollars nor tokens"]
    assert problems(budget(name="x")) == ["a budget of the whole tenant has no name"]
    assert problems(budget(scope="agent")) == ["the name of the agent is missing"]
