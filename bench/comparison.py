"""Ours beside the peers of the same run: the ratio to each, and whether the lines we promise are held."""

from collections.abc import Callable

from rich.table import Table

from bench.report import Results, Workloads

# Workload, figure, what people call it, and whether more is better.
COMPARED = (
    ("W1", "steps_per_s", "W1 steps/s", True),
    ("W2", "ms_per_step_p50", "W2 ms a step", False),
    ("W3", "ms_p50", "W3 ms", False),
    ("W4", "ratio", "W4 growth", False),
)
DISPATCHED = "dispatched to workers"  # how `subjects.peers` marks those of our own shape


def ratios(place: str, ours: Workloads, peers: Results) -> Table:
    shown = Table(title=f"ours on {place} beside the peers of this run", title_justify="left")
    shown.add_column("engine")
    for _, _, called, _ in COMPARED:
        shown.add_column(called, justify="right")
        shown.add_column("ours / its", justify="right", style="dim")
    shown.add_row("AgentFlow", *(part for compared in COMPARED for part in (_shown(_of(ours, compared)), "")))
    shown.add_section()
    for peer, measured in peers.items():
        parts = []
        for compared in COMPARED:
            mine, theirs = _of(ours, compared), _of(measured, compared)
            ratio = mine / theirs if mine is not None and theirs else None
            parts += [_shown(theirs), _shown(ratio)]
        shown.add_row(peer, *parts)
    return shown


def promises(ours: Workloads, peers: Results) -> Table:
    """What is promised of PostgreSQL with remote workers, every step committed before the next."""
    shown = Table(title="what is promised on PostgreSQL", title_justify="left")
    for column in ("line", "wanted", "measured", "held"):
        shown.add_column(column, justify="left" if column == "line" else "right")
    w1, w2, w3, w4 = (_of(ours, compared) for compared in COMPARED)
    dispatching = {peer: measured for peer, measured in peers.items() if DISPATCHED in peer}
    lines: list[tuple[str, float | None, float | None, bool]] = [
        ("W1 steps/s, 3 times the best peer", _times(3, _best(peers, COMPARED[0], max)), w1, True),
        ("W1 steps/s, 8 times the best that dispatches", _times(8, _best(dispatching, COMPARED[0], max)), w1, True),
        ("W2 ms a step, 0.8 times the best peer", _times(0.8, _best(peers, COMPARED[1], min)), w2, False),
        ("W3 ms, the best peer", _best(peers, COMPARED[2], min), w3, False),
        ("W4 growth", 1.05, w4, False),
        ("W5 KB an open execution", 20.0, ours.get("W5", {}).get("kb_each"), False),
        ("W6 s to be ready with 10,000 open", 5.0, ours.get("W6", {}).get("ready_s"), False),
    ]
    for line, wanted, measured, more in lines:
        if wanted is None or measured is None:
            shown.add_row(line, _shown(wanted), _shown(measured), "?")
            continue
        held = measured >= wanted if more else measured <= wanted
        shown.add_row(line, f"{'≥' if more else '≤'} {_shown(wanted)}", _shown(measured), "yes" if held else "NO")
    return shown


def _of(measured: Workloads, compared: tuple[str, str, str, bool]) -> float | None:
    return measured.get(compared[0], {}).get(compared[1])


def _best(peers: Results, compared: tuple[str, str, str, bool], choose: Callable[..., float | None]) -> float | None:
    return choose((value for one in peers.values() if (value := _of(one, compared)) is not None), default=None)


def _times(factor: float, value: float | None) -> float | None:
    return None if value is None else factor * value


def _shown(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.2f}" if value < 100 else f"{value:,.0f}"
