"""The Python client of a running AgentFlow: REST in, typed values and our own errors out.

Used by `af` and by programs. It knows the HTTP contract only: no bus, no database, no settings, no service.
"""

from agentflow.sdk.blocking import BlockingClient
from agentflow.sdk.client import Client

__all__ = ["BlockingClient", "Client"]
