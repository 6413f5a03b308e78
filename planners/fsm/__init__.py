"""The state machine planner: `compile` turns a loaded workflow into a `program` that answers the heart.

`table` is the compiled form, made once; `walk` goes through it for one answer, with `fans` for what stands inside of
states and `undo` for compensation; `turn` holds the answer in the making. No I/O, and nothing is raised while it
answers. `plan` says what a machine can do before it runs.
"""
