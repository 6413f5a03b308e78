"""`af validate`: check definitions without a control plane.

The planners judge, in a process of their own: the CLI belongs to the kernel, which does not import them.
"""

import subprocess
import sys
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from agentflow.cli.output import JsonFlag, print_json, stderr, stdout
from agentflow.errors import Bug, Problem
from agentflow.process_exit import ExitCode

_STDIN = Path("-")
_JUDGED_WITHIN_S = 60.0


class Verdict(msgspec.Struct, frozen=True):
    """What `python -m planners --json` says about one definition."""

    ok: bool
    name: str | None
    version: str | None
    problems: list[Problem]


class FileVerdict(msgspec.Struct, frozen=True):
    file: str
    ok: bool
    name: str | None
    version: str | None
    problems: list[Problem]


def validate(
    files: Annotated[list[Path], typer.Argument(help="Definitions, as YAML or JSON; - is stdin.", show_default=False)],
    json: JsonFlag = False,
) -> None:
    """Check workflow definitions and show every fault, with its line and column. Exits with 2 if there is one.

    \b
    Examples:
      af validate workflow.yaml
      cat workflow.yaml | af validate -
      af validate workflows/*.yaml --json
    """
    from agentflow.cli.services import require
    from agentflow.cli.workflows import definition_text

    require("Checking a workflow", "server", "planners", "cel_expr_python")
    verdicts = []
    for path in files:
        text = sys.stdin.buffer.read() if path == _STDIN else definition_text(path)
        verdicts.append(_told_for("stdin" if path == _STDIN else str(path), _judged(text)))
        if not json:
            _print(verdicts[-1])
    if json:
        print_json(verdicts)
    if not all(verdict.ok for verdict in verdicts):
        raise typer.Exit(ExitCode.REJECTED)


def _judged(text: bytes) -> Verdict:
    judging = subprocess.run(
        [sys.executable, "-m", "planners", "--json"],
        input=text,
        capture_output=True,
        timeout=_JUDGED_WITHIN_S,
        check=False,  # it exits with 2 when there are problems; what it says is what counts
    )
    try:
        return msgspec.json.decode(judging.stdout, type=Verdict)
    except msgspec.DecodeError:
        said = judging.stderr.decode(errors="replace").strip().splitlines()
        last = said[-1] if said else "nothing was said"
        raise Bug(f"The planners could not judge a definition (exit code {judging.returncode}): {last}") from None


def _told_for(file: str, verdict: Verdict) -> FileVerdict:
    return FileVerdict(file, verdict.ok, verdict.name, verdict.version, verdict.problems)


def _print(verdict: FileVerdict) -> None:
    if verdict.ok:
        stdout().print(f"ok {verdict.name} {verdict.version}")
    for problem in verdict.problems:
        place = verdict.file if problem.line is None else f"{verdict.file}:{problem.line}:{problem.column}"
        hint = f" ({problem.hint})" if problem.hint else ""
        stderr().print(f"{place}: {problem.message}{hint}")
