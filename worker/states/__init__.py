"""Agents that remember: their states, kept by the control plane and lived with here, one step at a time each.

`desk` asks the control plane, `memory` (pure) is what a saved state holds, `stateful` is the agent around an agent.
Must not enter: databases. A state that was fenced off is forgotten, never argued about.
"""
