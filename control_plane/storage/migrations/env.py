"""Alembic's way in: takes the open connection it is given, so that there is no configuration to keep in step."""

from alembic import context

from control_plane.storage.tables import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
# The caller's transaction, with its lock, spans all of it.
context.run_migrations()
