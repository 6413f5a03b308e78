"""The code of the built-in tools. Each file runs in the sandbox on its own: the standard library and, where said, one
library; nothing of AgentFlow is imported, and `run(input, context)` is the whole contract.
"""
