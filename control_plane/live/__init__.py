"""Committed events as they happen: one feed in each replica, read from the store and woken by the bus.

Knows the events and a port to read them; never FastAPI, gRPC or SQLAlchemy. WebSocket and SSE are
`control_plane.api.live`, gRPC's stream is in `control_plane.rpc`: all of them read the same feed.
"""
