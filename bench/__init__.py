"""Measures AgentFlow on this machine: `make bench`. Figures are for comparison within one run, never a promise."""
