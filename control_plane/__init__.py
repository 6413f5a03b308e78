"""The control plane: accepts work, decides what follows, remembers everything.

Never runs an agent or a tool: it meets workers on the bus and in `agentflow.contracts`, and imports neither
`worker` nor `sandbox`.
"""
