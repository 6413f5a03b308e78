"""The heart: the rules of one execution, as plain functions over plain data.

Three vocabularies, never mixed: `messages` (what reached us; may be late, repeated, wrong), `events` (what
happened; facts, stored for ever) and `commands` (what to do next; harmless when done twice). `evolve.evolve`
folds events into a `state`, `decide.decide` answers messages with the help of a `draft`, `program.Program` is the
question put to a planner, and `frozen_map` is what keeps all of it from growing slow.

Pure: no clock, no chance, no I/O, no `await`, no logging. Time and chance arrive inside messages.
"""
