"""Deciding recorded executions again: by the version they are pinned to, or by another one before it is trusted.

The rules are `agentflow.execution.replay`'s; here the record is read and large values are lent from where they lie.
What must not enter: the bus, workers, anything that writes. A replay reads, computes and answers.
"""
