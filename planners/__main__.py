"""`python -m planners [--json | --graph mermaid | --graph json] < definition`: check a workflow, or draw its plan.

For callers that may not import planners, such as `af validate`. Exit code 0: valid; 2: not.
"""

import sys

import msgspec

from agentflow.errors import Problem
from agentflow.workflow.load import InvalidWorkflow
from planners.kinds import compile_workflow
from planners.mermaid import mermaid


def main() -> int:
    as_json = "--json" in sys.argv[1:]
    try:
        compiled = compile_workflow(_text(sys.stdin.buffer.read()))
    except InvalidWorkflow as invalid:
        problems = [{name: getattr(it, name) for name in Problem.__struct_fields__} for it in invalid.problems]
        answer: dict[str, object] = {"ok": False, "name": None, "version": None, "digest": None, "problems": problems}
        answer |= {"plan_hash": None, "shape": None}
        _say(answer if as_json else str(invalid))
        return 2
    plan = compiled.program.plan()
    if "--graph" in sys.argv[1:]:
        drawn = mermaid(plan) if sys.argv[-1] == "mermaid" else msgspec.json.encode(plan).decode()
        _say(drawn.rstrip("\n"))
        return 0
    name, version = compiled.workflow.metadata.name, compiled.workflow.metadata.version
    answer = {"ok": True, "name": name, "version": version, "digest": compiled.digest, "problems": []}
    answer |= {"plan_hash": plan.plan_hash, "shape": msgspec.to_builtins(plan.shape)}
    _say(answer if as_json else f"{name} {version} is valid (digest {compiled.digest}).")
    return 0


def _text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        column = error.start - (raw.rfind(b"\n", 0, error.start) + 1) + 1
        raise InvalidWorkflow([Problem("This is not UTF-8 text.", "Save the file as UTF-8.", line, column)]) from None


def _say(answer: object) -> None:
    text = answer if isinstance(answer, str) else msgspec.json.encode(answer).decode()
    # Bytes, because a terminal of another encoding must not turn an answer into a stack trace.
    sys.stdout.buffer.write(text.encode() + b"\n")


if __name__ == "__main__":
    sys.exit(main())
