"""How a process tells what it is doing: logs now, traces and metrics later.

Set up once by each process's entry point. Nothing here decides anything, and no domain word enters: what is
logged is chosen where it happens.
"""
