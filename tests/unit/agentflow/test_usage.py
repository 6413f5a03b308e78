"""What was used, counted: exactly, by kinds that do not overlap, and never as nought where nobody knows."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentflow.contracts.usage import (
    MICRODOLLARS,
    TOKEN_KINDS,
    BadUsage,
    dollars_text,
    microdollars,
    tool_price,
    usage_of,
)


@given(st.integers(min_value=0, max_value=10**15))
def test_money_goes_to_text_and_back_without_a_loss(micro: int) -> None:
    assert microdollars(dollars_text(micro)) == micro


@pytest.mark.parametrize(
    ("per_call", "per_second", "took_ms", "expected"),
    [
        (0.1, 0.0, 5, 100_000),
        (0.1, 0.2, 1_000, 300_000),  # floats would make 0.30000000000000004 of it
        (0.0, 0.000001, 500, 1),  # half of a millionth is rounded up
        (0.0, 0.0, 9_999, 0),
        (1e-7, 0.0, 0, 0),
    ],
)
def test_a_tool_costs_what_its_model_says_to_a_millionth(
    per_call: float, per_second: float, took_ms: int, expected: int
) -> None:
    assert tool_price(per_call, per_second, took_ms) == expected


def test_tokens_of_all_kinds_add_up_to_what_was_used() -> None:
    used = usage_of("m", dollars=Decimal("0.5"), tokens={kind: 2**at for at, kind in enumerate(TOKEN_KINDS)})

    assert used.tokens == 2 ** len(TOKEN_KINDS) - 1
    assert used.microdollars == MICRODOLLARS // 2


def test_a_price_that_nobody_knows_is_not_nought() -> None:
    assert usage_of("m", dollars=None, tokens={"input": 5}).microdollars is None
    assert usage_of("m", dollars="0", tokens={}).microdollars == 0


@pytest.mark.parametrize(
    ("resource", "dollars", "tokens"),
    [
        ("", "1", {}),
        ("m", "-1", {}),
        ("m", "much", {}),
        ("m", "NaN", {}),
        ("m", "Infinity", {}),
        ("m", "1e99", {}),
        ("m", None, {"input": -1}),
        ("m", None, {"input": 1.5}),
        ("m", None, {"input": True}),
        ("m", None, {"prompt": 1}),
        ("m", None, {"input": 2**53}),
    ],
)
def test_what_cannot_be_counted_is_refused(resource: str, dollars: str | None, tokens: dict[str, int]) -> None:
    with pytest.raises(BadUsage):
        usage_of(resource, dollars=dollars, tokens=tokens)
