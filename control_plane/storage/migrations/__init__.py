"""The history of the schema, one file per change in `versions`. What was released is never edited, only followed.

Run by `control_plane.storage.migrate`; written with Alembic's operations, the same for both engines.
"""
