"""One file for each thing we measure. Its first line says what; `run` measures it.

`run(console)` returns place → workload → figure → value, and prints what it is doing meanwhile.
"""
