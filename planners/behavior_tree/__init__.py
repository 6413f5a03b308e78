"""The behaviour tree planner: `compile` turns a loaded workflow into a `program` of nodes that are ticked.

Nothing polls: the outcome of a step, a signal or a timer ticks the tree, and only the nodes it concerns are
visited. `node` says what every node can do and `tick` is one tick in the making; each family of nodes has a file
(`ordered`, `parallel`, `choice`, `wrappers`, `loops`, `timing`, `guard`, `condition`, `leaves`, `subtree`).

Nodes are frozen: what a node remembers is in the run's memory under its path, and nowhere else.
"""
