"""Snapshots: the immutable record of an execution at a version, kept for itself once its history is gone.

`snapshot` says what one is and what keeps them; `taking` makes one from what is stored; `book` is what can be asked;
`ended` takes them of executions that are over, where a deployment wants that. What is in the bytes is
`agentflow.contracts.snapshot`'s. Must not enter: SQL, HTTP, the bus, anything that decides.
"""
