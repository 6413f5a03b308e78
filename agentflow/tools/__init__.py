"""What a tool is, as data: its definition (YAML with line and column), its digest, and which change breaks its callers.

Pure. The control plane registers definitions, workers run by them, and both know the built-in ones, which lie here as
ordinary definitions (`builtin/*.yaml`). Must not enter: running anything (`worker.tools`, `sandbox`) and storing
anything (`control_plane.storage`).
"""
