"""Where large values lie, and how they get there without anybody noticing.

`blob` turns content into what is kept and back; `folder` and `s3` keep bytes under names; `store` joins them to the
port `ArtifactStore`, and `opening` chooses. `claim_check` swaps a large value for a reference and back. Must not enter:
databases, the bus, rules. The store passes tests/contract/test_artifact_store.py over both keepers.
"""
