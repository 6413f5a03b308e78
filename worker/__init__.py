"""Runs steps, one at a time per slot, well: pulls them from the bus, has an agent do them, reports, then acks.

`wiring` builds everything, `runtime` lives and dies, a `mailbox` per agent holds steps while they run, `agents/` do
them, `outcome` and `report` (pure) say what became of them. Must not enter: databases, planning, retries (the
control plane counts attempts), and tool code (it runs in `sandbox` only).
"""
