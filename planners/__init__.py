"""A definition in, a program out: what turns a workflow into decisions.

`expressions` is conditions and templates (CEL and JSONPath), `fsm` the state machine,
`behavior_tree` the tree; `kinds` joins a kind of planner to its compiler, `plan` says what a workflow can do before it
runs and `mermaid` draws that, `tracing` explains what an execution did, and `groot` exchanges trees with an editor.
Pure and deterministic: no clock, no chance, no I/O, no framework.
Planners see the kernel's words (workflow, execution, contracts, errors, limits), never its wires.
"""
