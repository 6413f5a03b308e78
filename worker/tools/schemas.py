"""A tool's input and output against its schemas, where it runs. The worker's one door to `jsonschema_rs`."""

from typing import Any, NoReturn

import jsonschema_rs

from agentflow.workflow.source_map import path_text

Schema = jsonschema_rs.Draft202012Validator

_SHOWN = 5
_MESSAGE_CHARS_MAX = 300


def compiled(schema: dict[str, Any]) -> Schema | None:
    """None where a schema says nothing."""
    if not schema:
        return None
    # The engine without look-around takes time linear in the value, whatever pattern somebody wrote.
    return Schema(schema, retriever=_never_fetch, pattern_options=jsonschema_rs.RegexOptions())


def faults(schema: Schema | None, value: Any, what: str) -> str:
    """What breaks the schema, in one line; empty where nothing does."""
    if schema is None:
        return ""
    found = []
    for error in schema.iter_errors(value):
        message = error.message.splitlines()[0][:_MESSAGE_CHARS_MAX]
        found.append(f"{path_text((what, *error.instance_path))}: {message}")
        if len(found) == _SHOWN:
            break
    return "; ".join(found)


def _never_fetch(uri: str) -> NoReturn:
    raise ValueError(f"references outside the schema are not followed ({uri})")
