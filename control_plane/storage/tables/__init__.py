"""Every table, as it is after the newest migration; a test holds the two equal on both engines.

One file for each subject; all of them are imported here, so that `metadata` is complete whoever asks for it.
Moments are milliseconds since the epoch and JSON is kept as it was written, so both engines give back exactly
what was put in.
"""

from control_plane.storage.tables.executions import event_store, executions
from control_plane.storage.tables.types import metadata
from control_plane.storage.tables.workflows import workflows

__all__ = ["event_store", "executions", "metadata", "workflows"]
