"""What protects an agent or tool from its callers, and its callers from it: rate, circuit, bulkhead, quick retries.

`rate` and `circuit` are pure: the moment is passed in, so every history can be tried in a test. `guard` is the shell
that waits and counts around a call. Must not enter: attempts of steps (the control plane's), the bus, databases.
"""
