"""The lines of a snapshot: what is written is read, and what is missing, doubled or out of place is found."""

import msgspec
import pytest

from agentflow.contracts.snapshot import FORMAT, End, Head, Pinned, event_line, faults, line, read_line, written

HEAD = Head(format=FORMAT, tenant="acme", execution="exec_1", version=3, trace="t")
PINNED = Pinned(id="wf_1", name="w", version="1.0.0", digest="d", tools={}, agents=["a"], source="x: 1\n")
WHOLE = [
    line("snapshot", HEAD),
    *(event_line(number, b'{"type":"e","n":1.0}') for number in (1, 2, 3)),
    line("workflow", PINNED),
    written("state", b'{"version":3}'),
    line("end", End(events=3, values=[], lost=[])),
]


def test_lines_are_read_as_they_were_written():
    lines = [read_line(raw) for raw in WHOLE]

    assert [one.kind for one in lines] == ["snapshot", "event", "event", "event", "workflow", "state", "end"]
    assert (lines[0].snapshot, lines[4].workflow) == (HEAD, PINNED)
    assert bytes(lines[1].event) == b'{"type":"e","n":1.0}'
    assert all(raw.count(b"\n") == 1 and raw.endswith(b"\n") for raw in WHOLE)
    assert faults(WHOLE) == []


@pytest.mark.parametrize("gone", range(len(WHOLE)))
def test_a_missing_line_is_found(gone):
    assert faults(WHOLE[:gone] + WHOLE[gone + 1 :]) != []


@pytest.mark.parametrize("twice", [0, 1, 3, 5, 6])
def test_a_line_that_is_there_twice_is_found(twice):
    assert faults(WHOLE[: twice + 1] + WHOLE[twice:]) != []


@pytest.mark.parametrize(("one", "other"), [(0, 1), (1, 2), (3, 4), (5, 6)])
def test_lines_in_another_order_are_found(one, other):
    swapped = list(WHOLE)
    swapped[one], swapped[other] = swapped[other], swapped[one]

    assert faults(swapped) != []


@pytest.mark.parametrize("raw", [b"", b"{}", b"[]", b'{"event":', b'{"else":1}'])
def test_what_is_no_line_of_ours_is_refused(raw):
    with pytest.raises(msgspec.DecodeError):
        read_line(raw)
    assert faults([*WHOLE[:2], raw]) != []


def test_a_format_of_another_release_is_named():
    of_tomorrow = line("snapshot", msgspec.structs.replace(HEAD, format="agentflow/snapshot/v2"))

    assert faults([of_tomorrow, *WHOLE[1:]]) == ["its format is 'agentflow/snapshot/v2', not 'agentflow/snapshot/v1'"]
