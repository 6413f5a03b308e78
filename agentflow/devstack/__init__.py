"""Real servers as child processes: for the embedded mode, and for tests that want the real thing.

Every child is started through `guard`, so none outlives us, however we die. What a server says or stores is not
known here: no bus, no tables, no service code enters; the services are programs this room starts.
"""
