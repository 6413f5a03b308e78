"""`af bench`: what this machine takes for the things that people wait for, held to what we promise."""

from collections.abc import Sequence
from typing import Annotated

import msgspec
import typer

from agentflow import limits
from agentflow.cli.output import JsonFlag, print_json, print_table, stderr
from agentflow.cli.sandbox_process import answer_of
from agentflow.contracts.measured import Measured, Spread
from agentflow.process_exit import ExitCode

_NAMES = ("process", "docker", "gvisor", "gvisor-docker", "wasm")
_CALL_S_MAX = 10.0  # a cold gVisor on a machine that is overrun
_BOUNDS = {  # of warm calls: median and 95th percentile, in milliseconds
    **dict.fromkeys(
        ("docker", "gvisor", "gvisor-docker"), (limits.SANDBOX_WARM_P50_MS_MAX, limits.SANDBOX_WARM_P95_MS_MAX)
    ),
    "wasm": (limits.WASM_WARM_MS_MAX, limits.WASM_WARM_MS_MAX),
}

app = typer.Typer(help="Measure this machine and hold it to what is promised.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Measure this machine and hold it to what is promised."""


@app.command("sandbox")
def sandbox(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="SANDBOX", help=f"Some of: {', '.join(_NAMES)}. All of them if none is named."),
    ] = None,
    calls: Annotated[int, typer.Option(min=5, max=1_000, help="Warm calls of each.")] = 40,
    cold: Annotated[int, typer.Option(min=2, max=200, help="Cold calls of each, which start a sandbox.")] = 8,
    check: Annotated[
        bool, typer.Option("--check", help="Exit with 2 unless the bounds hold in every sandbox that is measured.")
    ] = False,
    json: JsonFlag = False,
) -> None:
    """Measure a call of a tool that does nothing in every sandbox of this machine, cold and warm.

    A warm call finds a sandbox that stands ready, as a worker keeps it. Timed is
    the whole call, in milliseconds. Bounds of warm calls: docker and gvisor 100
    at the median and 400 at the 95th percentile, wasm 10. Of a sandbox that is
    not here you are told how to get it; with --check one that you name must be.

    \b
    Examples:
      af bench sandbox
      af bench sandbox gvisor wasm --calls 100
      AF_SANDBOX_IMAGE=sha256:… af bench sandbox docker --check
      af bench sandbox --json > sandbox.json
    """
    from agentflow.cli.services import require
    from agentflow.settings import load_settings

    unknown = [name for name in names or () if name not in _NAMES]
    if unknown:
        raise typer.BadParameter(f"There is no sandbox {unknown[0]!r}. Name some of: {', '.join(_NAMES)}.")
    require("Measuring the sandboxes", "worker", "sandbox", "docker", "wasmtime")
    settings = load_settings()
    progress, found = stderr(), []
    for name in names or _NAMES:
        progress.print(f"measuring {name} ...", style="dim")
        said = answer_of(
            "sandbox.measure", Measured, name, "--cold", str(cold), "--warm", str(calls),
            "--docker-host", settings.docker_host, "--image", settings.sandbox_image,
            within_s=_CALL_S_MAX * (cold + calls),
        )  # fmt: skip
        found.append(judged(said))
    if json:
        print_json(found)
    else:
        _print(found)
    if check and (against := objections(found, named=names or ())):
        for objection in against:
            progress.print(objection)
        raise typer.Exit(ExitCode.REJECTED)


def judged(measured: Measured) -> Measured:
    if measured.warm is None or measured.sandbox not in _BOUNDS:
        return measured
    p50_max, p95_max = _BOUNDS[measured.sandbox]
    holds = measured.warm.p50_ms <= p50_max and measured.warm.p95_ms <= p95_max
    return msgspec.structs.replace(measured, holds=holds)


def objections(found: Sequence[Measured], *, named: Sequence[str]) -> list[str]:
    """What keeps a check from passing. Where nothing that has a bound could be measured, nothing was shown."""
    slow = [f"{one.sandbox}: warm calls take longer than the bounds." for one in found if one.holds is False]
    absent = [
        f"{one.sandbox}: it was named and is not here." for one in found if one.cold is None and one.sandbox in named
    ]
    if not slow and not absent and all(one.holds is None for one in found):
        return ["None of the sandboxes that have a bound was measured."]
    return slow + absent


def _print(found: Sequence[Measured]) -> None:
    rows = []
    for one in found:
        p50_max, p95_max = _BOUNDS.get(one.sandbox, (None, None))
        kept = {True: "hold", False: "do not hold", None: ""}[one.holds]
        bounds = "" if p50_max is None else f"{p50_max} / {p95_max} {kept}".rstrip()
        rows.append([one.sandbox, _shown(one.cold), _shown(one.warm), bounds if one.cold else "not here"])
    print_table(["SANDBOX", "COLD p50 / p95 ms", "WARM p50 / p95 ms", "BOUNDS OF WARM CALLS"], rows)
    notes = stderr()
    for one in found:
        if one.cold is None:
            notes.print(f"{one.sandbox}: {one.reason}\n  try: {one.hint}")


def _shown(spread: Spread | None) -> str:
    return "-" if spread is None else f"{spread.p50_ms:.1f} / {spread.p95_ms:.1f}"
