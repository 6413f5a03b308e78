"""A workflow's identity by content: what an execution is pinned to."""

from agentflow.canonical import sha256_hex
from agentflow.workflow.model import Workflow


def digest(workflow: Workflow) -> str:
    """SHA-256 of the canonical JSON of what the definition says; comments and the order of keys do not count.

    What is not said is left out, so a key that a later release adds changes no digest of today.
    """
    return sha256_hex(workflow.model_dump(mode="json", by_alias=True, exclude_unset=True))
