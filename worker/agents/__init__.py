"""What does a step: one file per type of agent, all behind `agent.Agent`.

An agent turns a request into an output or raises; what an exception means is `worker.outcome`'s to say. Must not
enter: the bus, acks, timeouts of steps (the mailbox's) and code of tools (the sandbox's).
"""
