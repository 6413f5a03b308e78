"""The input of an execution, from what was typed: JSON, a file, stdin, or `key=value` pairs. Pure but for reading."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from agentflow.errors import Invalid


class UnusableInput(Invalid):
    code = "AF1521"

    def __init__(self, reason: str, hint: str) -> None:
        super().__init__(f"The input cannot be used: {reason}.", hint=hint)


def execution_input(given: str | None, file: Path | None, pairs: Sequence[str]) -> Any:
    """`given` is JSON, `@file` or `-` for stdin. Pairs are laid over it, so one field is easily changed."""
    if given is not None and file is not None:
        raise UnusableInput("it was given twice", "Use either --input or --input-file.")
    if file is not None:
        value = _parsed(_file_text(file), str(file))
    elif given == "-":
        value = _parsed(sys.stdin.buffer.read(), "stdin")
    elif given is not None and given.startswith("@"):
        value = _parsed(_file_text(Path(given[1:])), given[1:])
    else:
        value = {} if given is None else _parsed(given.encode(), "--input")
    if not pairs:
        return value
    if not isinstance(value, dict):
        raise UnusableInput("key=value pairs need an object to be laid over", "Give an object, or no pairs.")
    return {**value, **dict(_pair(text) for text in pairs)}


def _pair(text: str) -> tuple[str, Any]:
    key, separator, value = text.partition("=")
    if not separator or not key:
        raise UnusableInput(f"`{text}` is not key=value", "For example ticket='my printer is on fire' severity=3.")
    try:
        return key, msgspec.json.decode(value)
    except msgspec.DecodeError:
        return key, value  # plain words need no quotes


def _parsed(text: bytes, source: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UnusableInput(
            f"{source} is not JSON: {error}", """For example --input '{"ticket": "..."}', @ticket.json or -."""
        ) from None


def _file_text(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UnusableInput(f"{path} cannot be read: {error.strerror}", "Check the path.") from None
