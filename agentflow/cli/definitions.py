"""Files with definitions: reading them, and registering what is in them with the control plane.

What `af workflow push` and `af tool push` share: every file is read before the first one is sent, and a refusal
names its file.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from agentflow.cli.output import print_json
from agentflow.errors import Invalid

if TYPE_CHECKING:
    from agentflow.sdk.client import Client

Pushed = TypeVar("Pushed")


class UnreadableFile(Invalid):
    code = "AF1522"

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path} cannot be read: {reason}.", hint="Check the path and its permissions.")


def definition_text(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UnreadableFile(str(path), error.strerror or type(error).__name__) from None


async def push_files(
    files: list[Path],
    push: Callable[["Client", bytes, str], Awaitable[Pushed]],
    tell: Callable[[Path, Pushed], None],
    *,
    json: bool,
) -> None:
    from agentflow.cli.connection import control_plane

    texts = [(path, definition_text(path)) for path in files]
    pushed = []
    async with control_plane() as api:
        for path, text in texts:
            content_type = "application/json" if path.suffix == ".json" else "application/yaml"
            try:
                pushed.append(await push(api, text, content_type))
            except Invalid as error:
                error.message = f"{path}: {error.message}"
                raise
            if not json:
                tell(path, pushed[-1])
    if json:
        print_json(pushed)
