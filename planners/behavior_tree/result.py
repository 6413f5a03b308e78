"""How a node stands (`Status`), how a visit to it ended (`Result`), and what it may see (`Setting`)."""

from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

from agentflow.contracts.step import StepFault

# One letter each, because they are stored with every event of a tree.
Status = Literal["r", "s", "f", "h"]
RUNNING: Final = "r"
SUCCEEDED: Final = "s"
FAILED: Final = "f"
HALTED: Final = "h"  # given up while running; begins anew when it is visited again


JOINED: Final = "#"  # before the path of a parallel: what its children yielded, together


class Result(msgspec.Struct, frozen=True):
    """`yields` names the step (or the parallel) whose output is `output` for what follows; `fault` says why a node
    failed."""

    status: Status
    yields: str | None = None
    fault: StepFault | None = None


STILL_RUNNING = Result(RUNNING)
SUCCESS = Result(SUCCEEDED)


class Setting(msgspec.Struct, frozen=True):
    """What the place of a node in the tree gives it: the step and the fault before it, and its subtree."""

    last: str | None = None
    error: StepFault | None = None
    locals: Mapping[str, Any] = {}  # the parameters of its subtree
    prefix: str = ""  # of the names of the steps in a subtree


def after_success(setting: Setting, result: Result) -> Setting:
    """What the next child of a sequence sees."""
    if result.yields is None or result.yields == setting.last:
        return setting
    return Setting(result.yields, setting.error, setting.locals, setting.prefix)


def after_failure(setting: Setting, result: Result) -> Setting:
    """What the next child of a selector sees."""
    if result.fault is None:
        return setting
    return Setting(setting.last, result.fault, setting.locals, setting.prefix)
