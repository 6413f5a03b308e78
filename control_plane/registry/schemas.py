"""JSON Schema (Draft 2020-12) of workflow inputs: checked when registered, applied when an execution starts.

The one door to `jsonschema_rs`. Nothing is ever fetched: a reference must point inside its own schema.
"""

from typing import Any, NoReturn

import jsonschema_rs

from agentflow.errors import Problem
from agentflow.limits import PROBLEMS_SHOWN_MAX
from agentflow.workflow.source_map import Path, path_text

InputSchema = jsonschema_rs.Draft202012Validator

_MESSAGE_CHARS_MAX = 300  # the library repeats the offending value, which may be a whole document
_META_SCHEMA = {"$ref": "https://json-schema.org/draft/2020-12/schema"}  # comes with the library


def check_schema(schema: Any) -> list[str]:
    """Everything that is wrong with a schema, as `place: message`; nothing where it can be used."""
    return [f"{path_text(path) or 'schema'}: {message}" for path, message in schema_faults(schema)]


def compile_schema(schema: Any) -> InputSchema:
    # The engine without look-around takes time linear in the input, whatever pattern a tenant writes.
    return InputSchema(schema, retriever=_never_fetch, pattern_options=jsonschema_rs.RegexOptions())


def input_problems(schema: InputSchema, value: Any) -> list[Problem]:
    """What breaks the schema, at most as many as people read. `value` must have a canonical form: the library
    does not bound how deep it follows a value.
    """
    problems = []
    for error in schema.iter_errors(value):
        problems.append(Problem(_short(error.message), path=path_text(("input", *error.instance_path))))
        if len(problems) == PROBLEMS_SHOWN_MAX:
            break
    return problems


def schema_faults(schema: Any) -> list[tuple[Path, str]]:
    """As `check_schema`, with each place as a path into the schema."""
    faults = [
        (tuple(error.instance_path), _of_schema(error)) for error in InputSchema(_META_SCHEMA).iter_errors(schema)
    ]
    if not faults:
        # Well-formed, but it may still hold a reference or a pattern that does not work.
        try:
            compile_schema(schema)
        except jsonschema_rs.ValidationError as error:
            faults.append((tuple(error.instance_path), _of_schema(error)))
        except ValueError as error:
            faults.append(((), _short(str(error))))
    return list(dict.fromkeys(faults))


def _of_schema(error: jsonschema_rs.ValidationError) -> str:
    if error.instance_path[-1:] == ["type"]:
        return "not a type; the types are array, boolean, integer, null, number, object and string"
    # The library says first that it looked for the reference; only why it does not work matters here.
    return _short(error.message.rpartition("ValueError: ")[2])


def _never_fetch(uri: str) -> NoReturn:
    raise ValueError(f"references outside the schema are not followed ({uri})")


def _short(message: str) -> str:
    first = message.splitlines()[0] if message else "is not valid"
    return first if len(first) <= _MESSAGE_CHARS_MAX else first[:_MESSAGE_CHARS_MAX] + " …"
