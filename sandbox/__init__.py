"""Untrusted code, fenced: a tool call and a compiled profile in, one outcome out.

`policy` (pure) compiles what a tool declares into an `ExecProfile` that denies by default; `runner` picks the
backend by name and never a weaker one; `backends/` hold one way of fencing each. Today there is `process`:
every call is a fresh Python process with an empty environment, its own temporary folder, resource limits, and

- isolation `full`: no network (own network namespace), no way to outlive the call (own process-id namespace),
  no files but the interpreter's, the tool's own folder and what `fs.read:`/`fs.write:` grant (Landlock), no
  capabilities of the worker's user;
- isolation `reduced`: where the kernel refuses those (many containers do). Limits, environment, folder and the
  killing of the process group still hold; network and files do NOT. The worker logs `sandbox.reduced` once at its
  start, every outcome names its isolation, and a profile that demands `full` is refused, never run weaker.

Must not enter: buses, settings, agents. It sees the kernel's words (canonical, contracts, errors, ids, limits) only.
"""
