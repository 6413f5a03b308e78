"""Finds what an agents file names: imports `module:function` or `module:Class` as any Python program would.

Installs no import hook and changes nothing of the import system. What cannot be imported becomes an `UnloadedAgent`:
its own steps fail and say why; the worker, and the agents beside it, work on.
"""

import importlib
import os
import sys
import sysconfig
import traceback
from pathlib import Path
from typing import Any

from agentflow.contracts.step import StepFault, StepRequest
from agentflow.errors import Rejected
from worker.agents.agent import StepContext
from worker.outcome import StepFailed

_FRAMES_SHOWN_MAX = 8


class AgentNotImportable(Rejected):
    code = "AF1303"

    def __init__(self, agent: str, call: str, reason: str, story: str = "") -> None:
        super().__init__(
            f"Agent {agent!r} cannot be loaded from {call!r}: {reason}.",
            hint="Write `module:function`; the module lies beside the agents file or is installed with the worker.",
        )
        self.story = story or self.message


class UnloadedAgent:
    """Stands in for an agent that could not be imported."""

    def __init__(self, why: AgentNotImportable) -> None:
        self.why = why

    async def run(self, request: StepRequest, context: StepContext) -> Any:
        raise StepFailed(StepFault("agent_not_importable", self.why.story))

    async def close(self) -> None:
        """It never began."""


def load(agent: str, call: str) -> Any:
    """The function or class. Importing runs the module's code: that is what hosting an agent means."""
    module, _, name = call.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (Exception, SystemExit) as error:  # a user's module may raise anything while it is imported
        raise AgentNotImportable(agent, call, f"{type(error).__name__}: {error}", told(error)) from error
    if not callable(found):
        raise AgentNotImportable(agent, call, "it is not callable")
    return found


def told(error: BaseException) -> str:
    """The end of a traceback, without this machine's folders and without our own frames."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if "importlib" not in frame.filename and frame.filename != __file__
    ]
    lines = [
        f"  {_bare(frame.filename)}:{frame.lineno} in {frame.name}: {frame.line}"
        for frame in frames[-_FRAMES_SHOWN_MAX:]
    ]
    return "\n".join([f"{type(error).__name__}: {error}", *lines])


def _bare(filename: str) -> str:
    roots = sorted({sysconfig.get_path("purelib"), sysconfig.get_path("stdlib"), *sys.path}, key=len, reverse=True)
    for root in roots:
        if root and filename.startswith(root + os.sep):
            return filename[len(root) + 1 :]
    return Path(filename).name
