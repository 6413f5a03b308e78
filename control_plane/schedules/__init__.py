"""Executions that begin by the clock: what a schedule says, when it fires next, and the loop that lets it fire.

No SQL and no HTTP here: storage and the API stand in front of it. Starting is asked of whoever was passed in.
"""
