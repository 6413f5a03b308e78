"""What a command adds to how processes end (`agentflow.process_exit`): the machine's own refusals, in our words."""

from agentflow import process_exit
from agentflow.errors import Unavailable


class MachineRefused(Unavailable):
    code = "AF1525"

    def __init__(self, error: OSError) -> None:
        place = f"{error.filename}: " if error.filename else ""
        super().__init__(
            f"This machine refused an operation: {place}{error.strerror or error}.",
            hint="Check that the path exists, that you may write there and that the disk is not full.",
        )


def report(error: Exception, *, debug: bool) -> process_exit.ExitCode:
    """Tell a person what happened; a path that cannot be written is theirs to mend and not a fault of ours."""
    if isinstance(error, OSError):
        refused = MachineRefused(error)
        refused.__cause__ = error  # shown with the trace
        return process_exit.report(refused, debug=debug)
    return process_exit.report(error, debug=debug)
