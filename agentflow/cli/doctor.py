"""`af doctor`: what fences tools on this machine, found by trying; and what is missing, with how to get it.

Who tries them is `python -m sandbox`.
"""

from typing import Annotated

import msgspec
import typer

from agentflow.cli.output import JsonFlag, print_json, print_table, stderr
from agentflow.cli.sandbox_process import answer_of
from agentflow.process_exit import ExitCode

_TRIED_WITHIN_S = 180.0
_PROOFS = {"names": "a granted name leads to the proxy", "checkpoint": "a workspace is kept and brought back"}


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
    proofs: dict[str, str] = {}


def doctor(
    image: Annotated[
        list[str] | None, typer.Option(help="An image of a tool, by digest, to start under each runtime.")
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Try every sandbox of this machine: its fences, granted names, a workspace that is kept and brought back.

    Exits with 2 if the one that AF_SANDBOX names does not stand.

    \b
    Examples:
      af doctor
      af doctor --image registry.example.com/tool@sha256:…
      AF_SANDBOX=gvisor af doctor --json
    """
    from agentflow.cli.services import require
    from agentflow.settings import load_settings

    require("Trying the sandboxes", "worker", "sandbox", "docker", "wasmtime")
    settings = load_settings()
    images = [part for each in image or () for part in ("--tool-image", each)]
    findings = examine("--docker-host", settings.docker_host, "--image", settings.sandbox_image, *images)
    if json:
        print_json(findings)
    else:
        _print(findings, settings.sandbox)
    if not any(found.stands for found in findings if found.backend == settings.sandbox):
        raise typer.Exit(ExitCode.REJECTED)


def examine(*arguments: str) -> list[Finding]:
    return answer_of("sandbox", list[Finding], "--json", *arguments, within_s=_TRIED_WITHIN_S)


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
        for name, said in found.proofs.items():
            notes.print(f"{found.backend}: {_PROOFS.get(name, name)}: {said}")
        for warning in found.warnings:
            notes.print(f"{found.backend}: {warning}")
