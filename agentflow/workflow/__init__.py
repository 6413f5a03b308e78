"""What a person writes: the definition of a workflow, read, checked and named by its content.

`document` turns text into plain data that remembers where each value stood, `model` says what a definition
may contain, `load` joins the two, `validate` holds the rules of a state machine, `digest` names the content.

Pure: text in, data or problems out. No clock, no files, no network, no planner and no expression engine.
"""
