"""Whatever a test of the heart lives through is decided again afterwards, and must come out as it was."""

import pytest

from tests.unit.agentflow.execution import scripted
from tests.unit.agentflow.execution.replayed import digest_of, replayed


@pytest.fixture(autouse=True)
def every_run_replays(monkeypatch):
    runs = []
    begin = scripted.Run.__init__

    def noted(run, *args, **kwargs):
        runs.append(run)
        begin(run, *args, **kwargs)

    monkeypatch.setattr(scripted.Run, "__init__", noted)
    yield
    for run in runs:
        assert replayed(run.log, run.program) == (digest_of(run.log), None)
