"""Whether a step's rule to try again fits a tool that must not do its work twice. Pure.

Asked where a workflow is registered, with the tools that are registered, and by `af validate`, with those in files.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from agentflow.errors import Problem
from agentflow.workflow.source_map import Document, Path, path_text


class Repeatable(msgspec.Struct, frozen=True):
    """What a tool's definition, or an agents file, says of doing its work again."""

    effect: str = "idempotent"
    can_look: bool = False  # it has a `reconcile`

    @classmethod
    def of(cls, spec: Mapping[str, Any]) -> "Repeatable":
        run = spec.get("run")
        looks = run.get("reconcile") if isinstance(run, dict) else spec.get("reconcile")
        return cls(str(spec.get("effect", "idempotent")), bool(looks))


def in_vain(tool: str, may: Repeatable, step: Mapping[str, Any], document: Document, at: Path) -> Problem | None:
    """A rule to repeat what must not be repeated, of a tool that cannot look whether it was done."""
    retry = step.get("retry")
    if may.effect != "at_most_once" or may.can_look:
        return None
    if not isinstance(retry, dict) or retry.get("max_attempts", 1) == 1:
        return None
    place = (*at, "retry")
    return Problem(
        f"{tool} is called once at most, so it is never tried again.",
        "Remove `retry`, give the tool a `reconcile`, or make it idempotent by handing its effect key on.",
        *document.position(place),
        path_text(place),
    )
