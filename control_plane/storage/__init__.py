"""What the control plane remembers: the event store, the workflows, and the lists people read.

The one door to SQLAlchemy, and so to SQLite and PostgreSQL. It implements ports of `agentflow.ports` and
`control_plane.registry`; it decides nothing about executions, and workers never see it.
"""
