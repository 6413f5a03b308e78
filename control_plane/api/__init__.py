"""REST: one file per noun, each a thin translation between HTTP and the rooms behind it.

Knows FastAPI, the registry and the orchestrator; never storage or the bus. Every error leaves as problem
details (RFC 9457), built in `errors`.
"""
