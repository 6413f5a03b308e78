"""Logs as events: a fixed name such as `step.dispatched`, values as keys, one line each on stderr.

`configure_logs` is called once by each process's entry point; everything else calls `structlog.get_logger()`.
Libraries that use the standard logging module come out in the same form, from warnings on.
"""

import logging
import sys
from typing import Any, Literal

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

Level = Literal["debug", "info", "warning", "error"]
Format = Literal["console", "json"]

_MASK = "***"
_SECRET_WORDS = ("password", "passwd", "token", "secret", "authorization", "dsn", "api_key", "credential")


def configure_logs(level: Level, format: Format) -> None:
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="ts"),
        structlog.processors.StackInfoRenderer(),
        mask_secrets,
    ]
    number = logging.getLevelNamesMapping()[level.upper()]
    rendering = _json() if format == "json" else _console()
    structlog.configure(
        processors=[*shared, *rendering],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=False,
    )
    _route_standard_logging(shared, rendering, max(number, logging.WARNING))


def mask_secrets(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """A last net under the rule that secrets are not logged: values under telling names are masked, at any depth."""
    for key, value in event.items():
        event[key] = _masked(key, value)
    return event


def _masked(key: object, value: Any) -> Any:
    if value and isinstance(key, str) and any(word in key.lower() for word in _SECRET_WORDS) and _may_be_secret(value):
        return _MASK
    if isinstance(value, dict):
        return {inner: _masked(inner, item) for inner, item in value.items()}
    if isinstance(value, list | tuple):
        return [_masked(None, item) for item in value]
    return value


def _may_be_secret(value: Any) -> bool:
    """Numbers are not secrets: `tokens=120` is a cost, `token="…"` is a key."""
    return not isinstance(value, bool | int | float)


def _json() -> list[Processor]:
    return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(default=str, ensure_ascii=False)]


def _console() -> list[Processor]:
    return [
        structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(),
            timestamp_key="ts",
            pad_event_to=24,
            # The default would print local variables beside the trace, and those may hold secrets.
            exception_formatter=structlog.dev.plain_traceback,
        )
    ]


def _route_standard_logging(shared: list[Processor], rendering: list[Processor], level: int) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_logger_name, *shared],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *rendering],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for name in list(logging.root.manager.loggerDict):
        _give_up_own_handlers(logging.getLogger(name))


def _give_up_own_handlers(logger: logging.Logger) -> None:
    """A library that brought its own handlers would print each line twice, and in its own way."""
    logger.handlers.clear()
    logger.setLevel(logging.NOTSET)
    logger.propagate = True
