"""`af validate`: check definitions without a control plane.

The planners judge, in a process of their own: the CLI belongs to the kernel, which does not import them.
"""

import importlib.util
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from agentflow.cli import doctor
from agentflow.cli.output import JsonFlag, print_json, stderr, stdout
from agentflow.cli.planning import Shape, Verdict, judged, print_problems
from agentflow.errors import Problem
from agentflow.process_exit import ExitCode

if TYPE_CHECKING:
    from agentflow.tools.repeating import Repeatable

_STDIN = Path("-")
_TOOL = re.compile(rb"\btool:")


class FileVerdict(msgspec.Struct, frozen=True):
    file: str
    ok: bool
    name: str | None
    version: str | None
    problems: list[Problem]
    plan_hash: str | None
    shape: Shape | None


def validate(
    files: Annotated[list[Path], typer.Argument(help="Definitions, as YAML or JSON; - is stdin.", show_default=False)],
    tools: Annotated[
        list[Path] | None,
        typer.Option(
            "--tools",
            help="Tool definitions or agents files: rules to try again are held against them.",
            show_default=False,
        ),
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Check workflow definitions and show every fault, with its line and column. Exits with 2 if there is one.

    With --tools, a `retry` of a tool that must not be called twice, and cannot look whether it was, is a fault too.

    \b
    Examples:
      af validate workflow.yaml
      cat workflow.yaml | af validate -
      af validate workflows/*.yaml --json
      af validate workflow.yaml --tools tools/pay.yaml --tools agents.yaml
    """
    from agentflow.cli.definitions import definition_text
    from agentflow.cli.services import require

    require("Checking a workflow", "server", "planners", "cel_expr_python")
    known = _known_tools(tools or [])
    verdicts, uses_tools = [], False
    for path in files:
        text = sys.stdin.buffer.read() if path == _STDIN else definition_text(path)
        verdict = _told_for("stdin" if path == _STDIN else str(path), judged(text))
        verdicts.append(_held_against(known, verdict, text))
        if not json:
            _print(verdicts[-1])
        uses_tools |= _TOOL.search(text) is not None
    if uses_tools and not json:
        _warn_of_reduced_isolation()
    if json:
        print_json(verdicts)
    if not all(verdict.ok for verdict in verdicts):
        raise typer.Exit(ExitCode.REJECTED)


def _warn_of_reduced_isolation() -> None:
    """Tools that this machine cannot fence in full would run in less: nobody should learn that from an audit record."""
    if importlib.util.find_spec("sandbox") is None:
        return  # a control plane alone runs no tools
    for found in doctor.examine("process"):
        if found.isolation == "reduced":
            stderr().print(
                "warning: this machine fences tools in part only (reduced): they reach the network and the worker's "
                "files. `af doctor` says what is missing."
            )


def _known_tools(files: list[Path]) -> "dict[str, Repeatable]":
    """What the tools in these files may do twice, by name."""
    from agentflow.cli.definitions import definition_text
    from agentflow.tools.load import InvalidTool, load_tool
    from agentflow.tools.repeating import Repeatable
    from agentflow.workflow import document as documents

    known: dict[str, Repeatable] = {}
    for file in files:
        document, problems = documents.read(definition_text(file).decode())
        if document is None:
            raise InvalidTool(problems)
        data = document.data if isinstance(document.data, dict) else {}
        if data.get("kind") == "Agents":
            named = data.get("tools") or {}
            known |= {name: Repeatable.of(spec) for name, spec in named.items() if isinstance(spec, dict)}
        else:
            loaded = load_tool(definition_text(file).decode())
            known[loaded.definition.name] = Repeatable.of(loaded.data["spec"])
    return known


def _held_against(known: "dict[str, Repeatable]", verdict: FileVerdict, text: bytes) -> FileVerdict:
    from agentflow.tools.repeating import in_vain
    from agentflow.workflow import document as documents
    from agentflow.workflow.references import steps_with_tools

    document = documents.read(text.decode(errors="replace"))[0]
    if document is None or not known:
        return verdict
    found = []
    for step, at in steps_with_tools(document.data):
        name = step["tool"].partition("@")[0]
        if name in known and (problem := in_vain(f"`{name}`", known[name], step, document, at)) is not None:
            found.append(problem)
    return msgspec.structs.replace(verdict, ok=verdict.ok and not found, problems=[*verdict.problems, *found])


def _told_for(file: str, verdict: Verdict) -> FileVerdict:
    return FileVerdict(
        file, verdict.ok, verdict.name, verdict.version, verdict.problems, verdict.plan_hash, verdict.shape
    )


def _print(verdict: FileVerdict) -> None:
    if verdict.ok:
        stdout().print(f"ok {verdict.name} {verdict.version} ({verdict.shape})")
    print_problems(verdict.file, verdict.problems)
