"""Asks the sandboxes in a process of their own: the CLI belongs to the kernel, which does not import them."""

import subprocess
import sys
from typing import TypeVar

import msgspec

from agentflow.errors import Bug

T = TypeVar("T")


def answer_of(module: str, kind: type[T], *arguments: str, within_s: float) -> T:
    """What `python -m module` says on stdout. Its exit code says no more than that."""
    asked = subprocess.run(
        [sys.executable, "-m", module, *arguments], capture_output=True, timeout=within_s, check=False
    )  # fmt: skip
    try:
        return msgspec.json.decode(asked.stdout, type=kind)
    except msgspec.DecodeError:
        said = asked.stderr.decode(errors="replace").strip().splitlines()
        last = said[-1] if said else "nothing was said"
        raise Bug(f"The sandboxes could not be tried (exit code {asked.returncode}): {last}") from None
