"""The kernel that both planes share: the words, the pure heart, and the doors to the outside.

Imports none of the other top-level packages; they import it. Start reading at `agentflow.execution`.
"""
