import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from agentflow.clock import parse_rfc3339
from agentflow.telemetry.logs import configure_logs, mask_secrets


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:], root.level = handlers, level
    structlog.reset_defaults()


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    captured = capsys.readouterr()
    assert captured.out == ""
    return [json.loads(line) for line in captured.err.splitlines()]


def test_json_logs_are_one_object_a_line_with_event_level_and_moment(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs("info", "json")

    structlog.get_logger().info("step.dispatched", step="classify", attempt=1)

    (line,) = lines(capsys)
    assert {key: line[key] for key in ("event", "level", "step", "attempt")} == {
        "event": "step.dispatched",
        "level": "info",
        "step": "classify",
        "attempt": 1,
    }
    assert parse_rfc3339(str(line["ts"])) > 0


def test_what_is_below_the_level_is_not_logged(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs("warning", "json")

    structlog.get_logger().info("quiet")
    structlog.get_logger().warning("loud")

    assert [line["event"] for line in lines(capsys)] == ["loud"]


def test_libraries_come_out_in_the_same_form_from_warnings_on(capsys: pytest.CaptureFixture[str]) -> None:
    chatty = logging.getLogger("uvicorn.error")
    chatty.addHandler(logging.StreamHandler())
    chatty.setLevel(logging.INFO)
    configure_logs("info", "json")

    chatty.info("started")
    chatty.warning("slow %s", "request")

    (line,) = lines(capsys)
    assert (line["event"], line["level"], line["logger"]) == ("slow request", "warning", "uvicorn.error")


def test_an_exception_is_logged_with_its_trace_on_the_same_line(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs("info", "json")
    secret = "hush"
    try:
        int("broken")
    except ValueError:
        structlog.get_logger().exception("step.crashed")

    (line,) = lines(capsys)
    assert "ValueError: invalid literal" in str(line["exception"])
    assert secret not in str(line)


def test_console_logs_are_plain_text_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs("info", "console")

    structlog.get_logger().info("step.dispatched", step="classify")

    text = capsys.readouterr().err
    assert "step.dispatched" in text
    assert "step=classify" in text
    assert "\x1b" not in text


def test_values_under_telling_names_are_masked_at_any_depth() -> None:
    event = {
        "event": "x",
        "db_dsn": "postgres://af:hush@h/d",
        "headers": [{"Authorization": "hush", "Accept": "json"}],
        "agent": {"api_token": "hush", "name": "a"},
        "tokens": 120,
        "password": None,
    }

    assert mask_secrets(None, "info", event) == {
        "event": "x",
        "db_dsn": "***",
        "headers": [{"Authorization": "***", "Accept": "json"}],
        "agent": {"api_token": "***", "name": "a"},
        "tokens": 120,
        "password": None,
    }
