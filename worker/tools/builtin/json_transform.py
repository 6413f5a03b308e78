"""`json.transform`: a template whose `$…` texts are JSONPath queries (RFC 9535) into a value. Needs jsonpath-rfc9535.

A query that can find one thing only (`$.a.b[0]`) gives that thing, or null; any other gives the list of what it found.
"""

from typing import Any

import jsonpath_rfc9535


def run(input: dict[str, Any]) -> dict[str, Any]:
    return {"value": _filled(input["template"], input["value"])}


def _filled(template: Any, value: Any) -> Any:
    match template:
        case str() if template.startswith("$$"):
            return template[1:]
        case str() if template.startswith("$"):
            return _found(template, value)
        case dict():
            return {key: _filled(item, value) for key, item in template.items()}
        case list():
            return [_filled(item, value) for item in template]
        case _:
            return template


def _found(path: str, value: Any) -> Any:
    query = jsonpath_rfc9535.compile(path)
    found = query.find(value).values()
    if query.singular_query():
        return found[0] if found else None
    return list(found)
