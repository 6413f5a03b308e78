"""`af doctor`: what fences tools on this machine, found by trying; and what is missing, with how to get it.

The sandboxes are tried in a process of their own: the CLI belongs to the kernel, which does not import them.
"""

import subprocess
import sys

import msgspec
import typer

from agentflow.cli.output import JsonFlag, print_json, print_table, stderr
from agentflow.errors import Bug
from agentflow.process_exit import ExitCode

_TRIED_WITHIN_S = 180.0


class Finding(msgspec.Struct, frozen=True):
    """What `python -m sandbox --json` says about one backend."""

    backend: str
    stands: bool
    isolation: str = ""
    layers: tuple[str, ...] = ()
    reached: tuple[str, ...] = ()
    ms: float = 0.0
    reason: str = ""
    hint: str = ""
    warnings: tuple[str, ...] = ()


def doctor(json: JsonFlag = False) -> None:
    """Try every sandbox of this machine. Exits with 2 if the one that AF_SANDBOX names does not stand.

    \b
    Examples:
      af doctor
      AF_SANDBOX=gvisor af doctor --json
    """
    from agentflow.cli.services import require
    from agentflow.settings import load_settings

    require("Trying the sandboxes", "worker", "sandbox", "docker", "wasmtime")
    settings = load_settings()
    findings = examine("--docker-host", settings.docker_host, "--image", settings.sandbox_image)
    if json:
        print_json(findings)
    else:
        _print(findings, settings.sandbox)
    if not any(found.stands for found in findings if found.backend == settings.sandbox):
        raise typer.Exit(ExitCode.REJECTED)


def examine(*arguments: str) -> list[Finding]:
    tried = subprocess.run(
        [sys.executable, "-m", "sandbox", "--json", *arguments],
        capture_output=True,
        timeout=_TRIED_WITHIN_S,
        check=False,  # it exits with 2 when one does not stand; what it says is what counts
    )
    try:
        return msgspec.json.decode(tried.stdout, type=list[Finding])
    except msgspec.DecodeError:
        said = tried.stderr.decode(errors="replace").strip().splitlines()
        last = said[-1] if said else "nothing was said"
        raise Bug(f"The sandboxes could not be tried (exit code {tried.returncode}): {last}") from None


def _print(findings: list[Finding], chosen: str) -> None:
    rows = []
    for found in findings:
        state = f"stands, {found.isolation}" if found.stands else "does not stand"
        fences = ", ".join(found.layers) or found.reason
        rows.append([found.backend + (" *" if found.backend == chosen else ""), state, fences])
    print_table(["SANDBOX", "STATE", "FENCES"], rows)
    notes = stderr()
    for found in findings:
        if not found.stands and found.hint:
            notes.print(f"{found.backend}: {found.hint}")
        for reached in found.reached:
            notes.print(f"{found.backend}: a tool inside reaches {reached}")
        for warning in found.warnings:
            notes.print(f"{found.backend}: {warning}")
