"""`af`, the command line: one file for each noun, and the shared ways to speak, fail and show progress.

The outermost room: it may use the SDK, the settings and the devstack, and nothing imports it. Services are
started as processes, never imported. Heavy libraries are imported inside the command that needs them, so
that `af --help` stays quick.
"""
