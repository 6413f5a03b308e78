"""`python -m planners [--json | --graph mermaid|json|groot] < definition`: check a workflow, or draw it.
`python -m planners --from-groot [NAME [VERSION]] < xml`: the definition of a tree that Groot has saved, as JSON.

For callers that may not import planners, such as `af validate`. Exit code 0: valid; 2: not, and why.
"""

import sys

import msgspec

from agentflow.errors import Problem
from agentflow.workflow.load import InvalidWorkflow, LoadedWorkflow
from planners.groot.read import definition
from planners.groot.write import groot
from planners.kinds import CompiledWorkflow, compile_workflow
from planners.mermaid import mermaid
from planners.plan import Plan


def main() -> int:
    if "--from-groot" in sys.argv[1:]:
        return _from_groot(*sys.argv[2:4])
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
        return _draw(compiled, plan, sys.argv[-1])
    name, version = compiled.workflow.metadata.name, compiled.workflow.metadata.version
    answer = {"ok": True, "name": name, "version": version, "digest": compiled.digest, "problems": []}
    answer |= {"plan_hash": plan.plan_hash, "shape": msgspec.to_builtins(plan.shape)}
    _say(answer if as_json else f"{name} {version} is valid (digest {compiled.digest}).")
    return 0


def _draw(compiled: CompiledWorkflow, plan: Plan, form: str) -> int:
    try:
        if form == "groot":
            drawn = groot(LoadedWorkflow(compiled.document, compiled.workflow))
        else:
            drawn = mermaid(plan) if form == "mermaid" else msgspec.json.encode(plan).decode()
    except InvalidWorkflow as invalid:
        _say(str(invalid))
        return 2
    _say(drawn.rstrip("\n"))
    return 0


def _from_groot(name: str | None = None, version: str | None = None) -> int:
    try:
        made = definition(sys.stdin.buffer.read(), name=name, version=version)
    except InvalidWorkflow as invalid:
        _say(msgspec.json.encode([msgspec.to_builtins(problem) for problem in invalid.problems]).decode())
        return 2
    _say(msgspec.json.format(msgspec.json.encode(made), indent=2).decode())
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
