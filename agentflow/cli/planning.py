"""The planners, asked in a process of their own: the CLI belongs to the kernel, which does not import them."""

import subprocess
import sys
from typing import Literal

import msgspec

from agentflow.cli.output import stderr
from agentflow.errors import Bug, Problem

_ANSWERED_WITHIN_S = 60.0


class StepCount(msgspec.Struct, frozen=True):
    name: str
    min: int
    max: int | None


class Shape(msgspec.Struct, frozen=True):
    """How many steps an execution can run: at least `min` if it completes, at most `max`; None is no bound."""

    min: int
    max: int | None
    steps: list[StepCount]

    def __str__(self) -> str:
        bounds = f"{self.min} or more" if self.max is None else f"{self.min} to {self.max}"
        if self.min == self.max:
            bounds = str(self.min)
        return f"{len(self.steps)} {'step' if len(self.steps) == 1 else 'steps'}, {bounds} in one execution"


class Verdict(msgspec.Struct, frozen=True):
    """What `python -m planners --json` says about one definition."""

    ok: bool
    name: str | None
    version: str | None
    problems: list[Problem]
    plan_hash: str | None = None
    shape: Shape | None = None


def judged(text: bytes) -> Verdict:
    """What is wrong with a definition, or what it would do."""
    judging = _asked(text, "--json")
    try:
        return msgspec.json.decode(judging.stdout, type=Verdict)
    except msgspec.DecodeError:
        raise _speechless(judging) from None


def drawn(text: bytes, form: Literal["mermaid", "json", "groot"]) -> str | None:
    """The plan of a definition; None where it has problems, or cannot be drawn that way."""
    drawing = _asked(text, "--graph", form)
    if drawing.returncode not in (0, 2):
        raise _speechless(drawing)
    return drawing.stdout.decode() if drawing.returncode == 0 else None


def from_groot(text: bytes, name: str | None, version: str | None) -> str | list[Problem]:
    """The definition of a tree that Groot has saved, or what is wrong with that."""
    reading = _asked(text, "--from-groot", *([] if name is None else [name, *([] if version is None else [version])]))
    if reading.returncode == 0:
        return reading.stdout.decode()
    try:
        return msgspec.json.decode(reading.stdout, type=list[Problem])
    except msgspec.DecodeError:
        raise _speechless(reading) from None


def print_problems(file: str, problems: list[Problem]) -> None:
    for problem in problems:
        place = file if problem.line is None else f"{file}:{problem.line}:{problem.column}"
        hint = f" ({problem.hint})" if problem.hint else ""
        stderr().print(f"{place}: {problem.message}{hint}")


def _asked(text: bytes, *words: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "planners", *words],
        input=text,
        capture_output=True,
        timeout=_ANSWERED_WITHIN_S,
        check=False,  # it exits with 2 when there are problems; what it says is what counts
    )


def _speechless(asked: subprocess.CompletedProcess[bytes]) -> Bug:
    said = asked.stderr.decode(errors="replace").strip().splitlines()
    last = said[-1] if said else "nothing was said"
    return Bug(f"The planners could not judge a definition (exit code {asked.returncode}): {last}")
