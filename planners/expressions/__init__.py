"""Conditions and templates: CEL or JSONPath, checked once at registration against the declared schemas.

The way in is `conditions` (what decides) and `templates` (`${…}` in the input of a step); both give an
`expression`, which answers from the `Facts` of `scope`. On the way there `lexer` and `bounds` refuse what could hang
us, `dialect` what would not mean the same everywhere, `shapes` turns JSON Schema into types and `check` finds faults
before anything runs.

`engine` is the port of the CEL engines: `engine_google` and `engine_celpy` answer it, `engines` chooses. `jsonpath` and
`jsonpath_query` are the other language, `patterns` the regular expressions of both.
"""
