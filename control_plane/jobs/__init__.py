"""Long operations: accepted with an id, done by whichever control plane comes to it, looked at whenever one likes.

What must not enter: SQL, HTTP, and what any one kind of job does (its handler is given by the wiring).
"""
