"""Other engines on the same workloads, each in an environment of its own."""

import subprocess
from collections.abc import Collection
from pathlib import Path

from rich.console import Console

from bench.comparison import DISPATCHED
from bench.peers.run import PEERS, measured
from bench.report import Results

HOME = Path(__file__).parent.parent / "results" / "peers"  # their environments: half a gigabyte, made once


def run(console: Console, only: Collection[str] = ()) -> Results:
    """Those that are named, or all."""
    results: Results = {}
    for peer in (peer for peer in PEERS if not only or peer.name in only):
        console.print(f"measuring {peer.name} ...", style="dim")
        family = DISPATCHED if peer.dispatched else "in the workflow's process"
        place = results.setdefault(f"{peer.name} ({family})", {})
        try:
            for report in measured(peer, HOME):
                if "error" in report:
                    console.print(f"{peer.name} {report['workload']}: {report['error']}", style="yellow")
                numbers = {figure: value for figure, value in report.items() if isinstance(value, float)}
                if numbers:
                    place[report["workload"]] = numbers
        except (OSError, subprocess.SubprocessError) as error:
            console.print(f"{peer.name} was left out: {error}", style="yellow")
    return results
