"""The spool as a file: what is kept survives, what is torn is cut off, what is full says so."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from worker.spool import SpooledResult, SpoolFull, SpoolUnusable, open_spool

MIB = 1024 * 1024


def result(number: int, size: int = 10) -> SpooledResult:
    return SpooledResult(f"exec_1/step{number}#1/result", "workflows.support.in.3", b"x" * size)


def reopened(folder):
    spool = open_spool(folder, bytes_max=MIB)
    left = list(spool.left)
    spool.close()
    return left


def test_what_was_kept_is_there_for_the_next_process_and_what_was_confirmed_is_not(tmp_path):
    spool = open_spool(tmp_path, bytes_max=MIB)
    spool.keep([result(1), result(2)])
    spool.close()
    assert reopened(tmp_path) == [result(1), result(2)]

    spool = open_spool(tmp_path, bytes_max=MIB)
    for each in spool.left:
        spool.done(each.dedup_id)
    spool.close()

    assert reopened(tmp_path) == []


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 400), st.binary(max_size=40))
def test_a_torn_end_costs_only_itself_and_what_is_written_later_is_found(tmp_path_factory, cut, garbage):
    folder = tmp_path_factory.mktemp("spool")
    spool = open_spool(folder, bytes_max=MIB)
    spool.keep([result(number) for number in range(5)])
    spool.close()
    file = folder / "results-0.log"
    whole = file.read_bytes()
    file.write_bytes(whole[: max(0, len(whole) - cut)] + garbage)

    spool = open_spool(folder, bytes_max=MIB)
    before = list(spool.left)
    spool.keep([result(9)])
    spool.close()

    assert before == [result(number) for number in range(len(before))], "a whole beginning, nothing made up"
    assert len(before) >= 5 - 1 - cut // 60 or cut > 0
    assert reopened(folder) == [*before, result(9)]


def test_a_flipped_byte_is_found_by_its_checksum(tmp_path):
    spool = open_spool(tmp_path, bytes_max=MIB)
    spool.keep([result(1), result(2)])
    spool.close()
    file = tmp_path / "results-0.log"
    raw = bytearray(file.read_bytes())
    raw[len(raw) - 3] ^= 0xFF
    file.write_bytes(raw)

    assert reopened(tmp_path) == [result(1)]


def test_two_workers_share_a_folder_and_the_next_one_takes_over_what_both_left(tmp_path):
    one, two = open_spool(tmp_path, bytes_max=MIB), open_spool(tmp_path, bytes_max=MIB)
    one.keep([result(1)])
    two.keep([result(2)])
    alive = open_spool(tmp_path, bytes_max=MIB)
    assert alive.left == (), "what living workers keep is theirs"
    for spool in (one, two, alive):
        spool.close()

    assert sorted(each.dedup_id for each in reopened(tmp_path)) == [result(1).dedup_id, result(2).dedup_id]
    assert sorted(each.dedup_id for each in reopened(tmp_path)) == [result(1).dedup_id, result(2).dedup_id]


def test_it_is_bounded_and_room_that_was_confirmed_is_used_again(tmp_path):
    spool = open_spool(tmp_path, bytes_max=10_000)
    spool.keep([result(1, 6_000)])
    with pytest.raises(SpoolFull, match="10000 bytes"):
        spool.keep([result(2, 6_000)])
    spool.keep([result(3, 100)])
    spool.done(result(1, 6_000).dedup_id)

    spool.keep([result(4, 6_000)])
    spool.close()

    assert [each.dedup_id for each in reopened(tmp_path)] == [result(3).dedup_id, result(4).dedup_id]


def test_a_folder_that_cannot_be_written_is_refused_in_a_sentence(tmp_path):
    (tmp_path / "file").write_text("in the way")

    with pytest.raises(SpoolUnusable) as refused:
        open_spool(tmp_path / "file" / "spool", bytes_max=MIB)

    assert refused.value.code == "AF1310"
