"""The heart: the rules of one execution, as plain functions over plain data.

Three vocabularies, never mixed: `messages` (what reached us; may be late, repeated, wrong), `events` (what
happened; facts, stored for ever) and `commands` (what to do next; harmless when done twice). `state.evolve`
folds events, `decide.decide` answers messages, `program.Program` is the question put to a planner.

Pure: no clock, no chance, no I/O, no `await`, no logging. Time and chance arrive inside messages.
"""
