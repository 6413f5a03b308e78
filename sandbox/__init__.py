"""Untrusted code, fenced: a tool call and a compiled profile in, one outcome out.

`permissions` is the language of grants, `policy` intersects role, tool and tenant into an `ExecProfile` that denies by
default (both are pure); `runner` opens a backend by name and never a weaker one; `backends/` hold the ways of fencing;
`workspace` reads what a tool left without being led astray; `egress/` is the only way out. `python -m sandbox` tries
the backends of this machine.

Every outcome names its profile, its backend, its isolation and the layers that stood. Isolation is `reduced` where the
kernel refuses what `process` needs: limits, environment and the killing of the process group still hold, network and
files do NOT. The worker then logs `sandbox.reduced` at its start, and a profile that demands `full` is refused.

Must not enter: buses, settings, agents. It sees the kernel's words (canonical, contracts, errors, ids, limits) only.
"""
