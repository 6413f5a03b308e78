"""Conditions and templates: CEL, checked once at registration against the declared schemas.

`lexer` and `bounds` refuse what could hang us, `shapes` turns JSON Schema into types, `scope` says which names
a place may use, `check` finds faults before anything runs, `evaluate` gives a value or a fault as data,
`templates` puts expressions into the input of a step.

`engine` is the one door to the CEL runtime: no other module imports it.
"""
