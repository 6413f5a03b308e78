"""`af limits` names every bound with its value, and the setting behind it where there is one."""

import json

import pytest

from agentflow import limits
from agentflow.cli import main
from agentflow.cli.limits import _DEFAULTS
from agentflow.settings import Settings


@pytest.fixture(autouse=True)
def nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AF_API_URL", "http://127.0.0.1:9")


def test_every_limit_is_listed_with_its_value(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.af(["limits", "--json"]) == 0

    listed = {row["limit"]: row for row in json.loads(capsys.readouterr().out)}
    names = {name.lower() for name in vars(limits) if name.isupper()}
    assert set(listed) == names
    assert listed["claim_check_bytes"]["value"] == str(limits.CLAIM_CHECK_BYTES)


def test_without_a_control_plane_it_says_what_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.af(["limits"]) == 0

    said = capsys.readouterr()
    assert "quota." not in said.out
    assert "Without your tenant's quotas and their use:" in said.err


def test_what_a_setting_changes_is_shown_as_it_was_changed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AF_DISPATCH_WINDOW", "77")
    assert main.af(["limits", "--json"]) == 0

    listed = {row["limit"]: row for row in json.loads(capsys.readouterr().out)}
    assert (listed["dispatch_window"]["value"], listed["dispatch_window"]["setting"]) == ("77", "AF_DISPATCH_WINDOW")


def test_every_setting_that_defaults_to_a_limit_is_known_to_be_one() -> None:
    assert {field: getattr(limits, name) for field, name in _DEFAULTS.items()} == {
        field: Settings.model_fields[field].default for field in _DEFAULTS
    }
