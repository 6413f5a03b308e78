"""What tests of AgentFlow, ours and our users', may lean on.

Nothing that runs in production imports this room, and nothing here imitates a server we can start for real.
"""

from agentflow.testing.eventually import eventually

__all__ = ["eventually"]
