"""Checked against the vectors that RFC 8785 publishes: sections 3.2.2, 3.2.3 and appendix B."""

import struct

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from agentflow.canonical import NotCanonical, canonical, sha256_hex

# Appendix B: the bits of an IEEE 754 double, and how it must be written.
NUMBERS = [
    ("0000000000000000", "0"),
    ("8000000000000000", "0"),
    ("0000000000000001", "5e-324"),
    ("8000000000000001", "-5e-324"),
    ("7fefffffffffffff", "1.7976931348623157e+308"),
    ("ffefffffffffffff", "-1.7976931348623157e+308"),
    ("4340000000000000", "9007199254740992"),
    ("c340000000000000", "-9007199254740992"),
    ("4430000000000000", "295147905179352830000"),
    ("44b52d02c7e14af5", "9.999999999999997e+22"),
    ("44b52d02c7e14af6", "1e+23"),
    ("44b52d02c7e14af7", "1.0000000000000001e+23"),
    ("444b1ae4d6e2ef4e", "999999999999999700000"),
    ("444b1ae4d6e2ef4f", "999999999999999900000"),
    ("444b1ae4d6e2ef50", "1e+21"),
    ("3eb0c6f7a0b5ed8c", "9.999999999999997e-7"),
    ("3eb0c6f7a0b5ed8d", "0.000001"),
    ("41b3de4355555553", "333333333.3333332"),
    ("41b3de4355555554", "333333333.33333325"),
    ("41b3de4355555555", "333333333.3333333"),
    ("41b3de4355555556", "333333333.3333334"),
    ("41b3de4355555557", "333333333.33333343"),
    ("becbf647612f3696", "-0.0000033333333333333333"),
    ("43143ff3c1cb0959", "1424953923781206.2"),
]


@pytest.mark.parametrize(("bits", "text"), NUMBERS)
def test_numbers_are_written_as_the_rfc_lists_them(bits, text):
    (number,) = struct.unpack(">d", bytes.fromhex(bits))

    assert canonical(number) == text.encode()


def test_the_rfcs_sample_object_gets_its_published_bytes():
    sample = {
        "numbers": [333333333.33333329, 1e30, 4.50, 2e-3, 0.000000000000000000000000001],
        "string": "\u20ac$\u000f\u000aA'\u0042\u0022\u005c\\\"\u002f",
        "literals": [None, True, False],
    }

    published = (
        '{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],'
        '"string":"€$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}'
    )
    assert canonical(sample) == published.encode()


def test_keys_are_sorted_by_utf16_code_units_as_in_section_3_2_3():
    sample = {
        "\u20ac": "Euro Sign",
        "\r": "Carriage Return",
        "\ufb33": "Hebrew Letter Dalet With Dagesh",
        "1": "One",
        "\U0001f600": "Emoji: Grinning Face",
        "\u0080": "Control",
        "\u00f6": "Latin Small Letter O With Diaeresis",
    }

    order = [
        "Carriage Return",
        "One",
        "Control",
        "Latin Small Letter O With Diaeresis",
        "Euro Sign",
        "Emoji: Grinning Face",
        "Hebrew Letter Dalet With Dagesh",
    ]
    written = canonical(sample).decode()
    assert sorted(order, key=written.index) == order


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), 2**53, -(2**53), "\ud800", {1: 2}, object(), {"a": b"x"}]
)
def test_what_has_no_canonical_form_is_refused_with_a_hint(value):
    with pytest.raises(NotCanonical) as refused:
        canonical(value)

    assert "JSON values only" in refused.value.hint


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=6), inner, max_size=5),
    max_leaves=20,
)


@given(values)
def test_the_fast_path_writes_what_the_reference_writes(value):
    assert canonical(value) == rfc8785.dumps(value)


@given(st.dictionaries(st.text(max_size=6), st.integers(0, 9), max_size=8), st.randoms(use_true_random=False))
def test_the_hash_does_not_depend_on_the_order_of_keys(value, chance):
    keys = list(value)
    chance.shuffle(keys)

    assert sha256_hex({key: value[key] for key in keys}) == sha256_hex(value)
