"""The state machine planner: `compile` turns a loaded workflow into a `program` that answers the heart.

A program is a table made once; answering is a look-up and the conditions of one state. No I/O, nothing that
changes, and nothing is raised while it answers.
"""
