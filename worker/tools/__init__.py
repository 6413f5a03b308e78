"""Every tool call of a worker: which tool it is, under which profile, with which way out, and what is on record of it.

`agent` is the built-in agent `tools`; `hosting` turns definitions into callable tools, `definitions` asks the control
plane for pinned ones, `records` publishes, `redaction` (pure) keeps secrets out of records, `builtin/` is the code of
AgentFlow's own tools, which runs in the sandbox like any other. Must not enter: running a tool's code in this process.
"""
