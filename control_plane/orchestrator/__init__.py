"""Drives executions: the one loop that loads, decides, commits and then sends.

Knows the ports of `agentflow.ports` and the pure heart; never a database, a NATS client or HTTP. Nothing is
sent before the event that implies it is committed, and everything sent can be derived again from the events.
"""
