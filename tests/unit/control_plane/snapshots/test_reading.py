"""A snapshot read as a record: page by page, however its bytes arrive."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentflow.contracts.snapshot import FORMAT, End, Head, SnapshotAltered, event_line, line
from agentflow.errors import Bug
from agentflow.execution.events import ExecutionBegun, encode
from agentflow.ids import ExecutionId, TenantId
from control_plane.snapshots.reading import RecordOfSnapshot

ACME, EXECUTION = TenantId("acme"), ExecutionId("exec_1")
EVENTS = [ExecutionBegun(number) for number in range(1, 8)]
HEAD = Head(format=FORMAT, tenant=ACME, execution=EXECUTION, version=len(EVENTS), trace="t")
CONTENT = b"".join(
    [
        line("snapshot", HEAD),
        *(event_line(number, encode(event)) for number, event in enumerate(EVENTS, 1)),
        line("end", End(events=len(EVENTS), values=[], lost=[])),
    ]
)


async def chunks(content, cuts=(), taken=None):
    for start, end in zip((0, *cuts), (*cuts, len(content)), strict=True):
        if taken is not None:
            taken.append(start)
        yield content[start:end]


@given(st.sets(st.integers(1, len(CONTENT) - 1), max_size=20), st.integers(1, 9))
async def test_every_event_is_read_once_in_pages_however_the_bytes_arrive(cuts, limit):
    record = RecordOfSnapshot("snap_1", chunks(CONTENT, sorted(cuts)))
    found = []
    while page := await record.read(ACME, EXECUTION, after_version=len(found), limit=limit):
        assert len(page) <= limit
        found += page

    assert [one.event for one in found] == EVENTS
    assert [one.version for one in found] == list(range(1, 8))


async def test_with_the_last_event_the_content_was_read_to_its_end_and_so_proven():
    taken: list[int] = []
    record = RecordOfSnapshot("snap_1", chunks(CONTENT, (len(CONTENT) - 1,), taken))

    await record.read(ACME, EXECUTION, limit=100)

    assert len(taken) == 2


async def test_what_is_no_snapshot_and_what_was_read_already_are_refused():
    with pytest.raises(SnapshotAltered):
        await RecordOfSnapshot("snap_1", chunks(b"no lines\n")).read(ACME, EXECUTION)
    record = RecordOfSnapshot("snap_1", chunks(CONTENT))
    await record.read(ACME, EXECUTION, limit=2)
    with pytest.raises(Bug):
        await record.read(ACME, EXECUTION, limit=2)
