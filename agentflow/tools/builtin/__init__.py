"""The definitions of the built-in tools, as data; their code is `worker/tools/builtin`."""
