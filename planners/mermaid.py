"""A plan as a Mermaid flowchart, for READMEs, documents and the dashboard. The same plan gives the same text."""

from collections.abc import Iterator

from planners.plan import Plan, PlanNode

_SHAPES = {
    "step": ('["', '"]'),
    "action": ('["', '"]'),
    "condition": ('{{"', '"}}'),
    "choice": ('{{"', '"}}'),
    "end": ('(["', '"])'),
    "succeed": ('(["', '"])'),
    "fail": ('(["', '"])'),
    "wait": ('>"', '"]'),
    "signal": ('>"', '"]'),
    "human": ('[/"', '"/]'),
    "subworkflow": ('[["', '"]]'),
}
_OTHER = ('("', '")')
_ARROWS = {"next": "-->", "child": "-->", "error": "-.->"}
_LABEL_CHARS_MAX = 80


def mermaid(plan: Plan) -> str:
    return "\n".join(_lines(plan)) + "\n"


def _lines(plan: Plan) -> Iterator[str]:
    # Ids of our own: a name may be a word of Mermaid's, such as `end`.
    ids = {node.id: f"n{at}" for at, node in enumerate(plan.nodes)}
    yield "flowchart TD"
    for node in plan.nodes:
        opening, closing = _SHAPES.get(node.kind, _OTHER)
        yield f"  {ids[node.id]}{opening}{_text(_label(node))}{closing}"
    for edge in plan.edges:
        label = f'|"{_text(edge.label)}"|' if edge.label else ""
        yield f"  {ids[edge.source]} {_ARROWS[edge.kind]}{label} {ids[edge.target]}"


def _label(node: PlanNode) -> str:
    if node.step is None:
        return node.label
    return f"{node.label}: {node.step.tool or node.step.agent}"


def _text(label: str) -> str:
    """Inside quotes Mermaid takes everything but quotes, markup and line breaks."""
    short = label if len(label) <= _LABEL_CHARS_MAX else f"{label[: _LABEL_CHARS_MAX - 1]}…"
    escaped = short.replace("#", "#35;").replace('"', "#quot;").replace("<", "#lt;").replace(">", "#gt;")
    return " ".join(escaped.split())
