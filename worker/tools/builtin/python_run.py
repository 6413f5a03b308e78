"""`python.run`: code as text, run here, where there is nothing to reach but what was granted."""

import contextlib
import io
from typing import Any

_PRINTED_CHARS_MAX = 64 * 1024


def run(input: dict[str, Any], context: Any) -> dict[str, Any]:
    printed = io.StringIO()
    scope = {"__name__": "__main__", "input": input.get("input"), "context": context, "output": None}
    with contextlib.redirect_stdout(printed):
        exec(compile(input["code"], "<python.run>", "exec"), scope)  # noqa: S102 - running it is the tool
    return {"output": scope["output"], "printed": printed.getvalue()[:_PRINTED_CHARS_MAX]}
