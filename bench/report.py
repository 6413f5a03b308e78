"""What was measured, as a table for people and as a file for machines."""

import json
import os
import platform
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.table import Table

Figures = dict[str, float]
Workloads = dict[str, Figures]
Results = dict[str, Workloads]  # by place: an engine, a backend, a peer

FOLDER = Path(__file__).parent / "results"


def table(subject: str, results: Results) -> Table:
    shown = Table(title=subject, title_justify="left")
    for column in ("on", "workload", "figure", "value"):
        shown.add_column(column, justify="right" if column == "value" else "left")
    for place, measured in results.items():
        for workload, figures in measured.items():
            for figure, value in figures.items():
                shown.add_row(place, workload, figure, f"{value:,.2f}" if value < 100 else f"{value:,.0f}")
        shown.add_section()
    return shown


def save(measured: dict[str, Results]) -> Path:
    report: dict[str, Any] = {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "machine": {"system": platform.system(), "architecture": platform.machine(), "cores": os.cpu_count()},
        "results": measured,
    }
    path = FOLDER / "latest.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(report, indent=2) + "\n")
    return path
