"""Whatever a test of the heart lives through is decided again afterwards, and must come out as it was."""

import pytest

from tests.unit.agentflow.execution import scripted
from tests.unit.agentflow.execution.replayed import digest_of, replayed


@pytest.fixture(autouse=True)
def every_run_replays(monkeypatch):
    runs = {}
    give = scripted.Run.give

    def noted(run, message):
        runs[id(run)] = run
        return give(run, message)

    monkeypatch.setattr(scripted.Run, "give", noted)
    yield
    for run in runs.values():
        assert replayed(run.log, run.program) == (digest_of(run.log), None)
