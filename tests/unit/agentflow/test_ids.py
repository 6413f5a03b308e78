from hypothesis import given
from hypothesis import strategies as st

from agentflow.ids import DEFAULT_TENANT, ExecutionId, UlidSource, decode_ulid, encode_ulid, shard_of


def test_ids_say_what_they_name_and_are_26_letters_long():
    ids = UlidSource(lambda: 1_700_000_000_000)

    assert ids.execution().startswith("exec_")
    assert ids.workflow().startswith("wf_")
    assert ids.worker().startswith("wrk_")
    assert len(ids.message()) == 26
    assert len(ids.trace()) == 32
    assert DEFAULT_TENANT == "default"


def test_the_published_example_timestamp_is_the_first_ten_letters():
    # From the ULID specification: 1469918176385 ms is 01ARYZ6S41.
    ids = UlidSource(lambda: 1469918176385, chance=lambda bits: 0)

    assert ids.ulid() == "01ARYZ6S410000000000000000"


@given(st.lists(st.integers(min_value=0, max_value=2**47), min_size=2, max_size=50))
def test_ids_increase_within_a_process_even_when_the_clock_steps_back(moments):
    ticking = iter(moments)
    ids = UlidSource(lambda: next(ticking))

    made = [ids.ulid() for _ in moments]

    assert made == sorted(made)
    assert len(set(made)) == len(made)


@given(st.integers(min_value=0, max_value=2**128 - 1))
def test_a_ulid_reads_back_as_the_number_it_was_written_from(value):
    assert decode_ulid(encode_ulid(value)) == value


@given(st.text(max_size=30))
def test_text_that_is_no_ulid_is_refused_and_never_misread(text):
    try:
        value = decode_ulid(text)
    except ValueError:
        return
    assert encode_ulid(value) == text.upper()


def test_executions_spread_over_all_shards():
    ids = UlidSource(lambda: 1_700_000_000_000)

    seen = {shard_of(ids.execution(), 16) for _ in range(500)}

    assert seen == set(range(16))
    assert shard_of(ExecutionId("exec_01ARYZ6S410000000000000000"), 16) == 13  # pinned: moving it orphans executions
