"""The record of an execution as a folder, checked without a control plane; and where it stood at any version."""

import json

import pytest

from agentflow.errors import NotFound
from tests.e2e.test_replay import ran, text


async def test_a_record_is_exported_and_found_whole_until_somebody_touches_it(api, af, tmp_path):
    await api.push_workflow(text("recorded", "1.0.0"))
    execution = await ran(api, "recorded", 3)

    said = af("snapshot", "export", execution, "--to", "record").stdout
    folder = tmp_path / "record"
    index = json.loads((folder / "run.json").read_text())

    assert index["digest"] in said
    assert index["workflow"]["digest"] == (await api.workflow("recorded@1.0.0")).digest
    assert len((folder / "events.jsonl").read_text().splitlines()) == index["events"] == index["version"]
    assert af("snapshot", "verify", "record").stdout.startswith(f"whole: {execution}")
    assert af("snapshot", "export", execution, "--to", "record", may_fail=True).returncode == 2
    for name in ("events.jsonl", "workflow.yaml", "run.json"):
        whole = (folder / name).read_bytes()
        (folder / name).write_bytes(whole.replace(b"recorded", b"rewritten", 1).replace(b"exec", b"hexe", 1))
        broken = af("snapshot", "verify", "record", may_fail=True)
        assert (broken.returncode, f"{name}: It was changed." in broken.stderr) == (2, True)
        (folder / name).write_bytes(whole)
    (folder / "state.json").unlink()
    (folder / "more.txt").write_text("x")
    broken = af("snapshot", "verify", "record", may_fail=True).stderr
    assert "state.json: It is missing." in broken
    assert "more.txt: It does not belong to the record." in broken


async def test_where_an_execution_stood_can_be_seen_at_every_version(api):
    await api.push_workflow(text("recorded", "1.0.0"))
    execution = await ran(api, "recorded", 3)
    history = await api.history(execution)

    states = [await api.records.state(execution, event.version) for event in history]

    assert [state.version for state in states] == [event.version for event in history]
    assert states[-1] == await api.execution(execution)
    assert (states[0].status, states[0].signals, states[0].vars) == ("running", [], {})
    assert any(state.signals for state in states[1:-1])
    with pytest.raises(NotFound):
        await api.records.state(execution, len(history) + 1)
