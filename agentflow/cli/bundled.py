"""The templates that come with AgentFlow: inside the package when installed, beside it in the repository."""

from pathlib import Path

import agentflow
from agentflow.errors import NotFound


class TemplateMissing(NotFound):
    code = "AF1524"

    def __init__(self, name: str) -> None:
        super().__init__(
            f"The template {name!r} is not in this installation.",
            hint="Install AgentFlow again (pip install --force-reinstall agentflow), or start af from a full clone.",
        )


def template(name: str) -> Path:
    package = Path(agentflow.__file__).parent
    for shelf in (package / "templates", package.parent / "templates"):
        if (shelf / name / "workflow.yaml").is_file():
            return shelf / name
    raise TemplateMissing(name)
