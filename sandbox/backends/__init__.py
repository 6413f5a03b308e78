"""One way of fencing a call per file, each behind `sandbox.runner.Sandbox`: process, docker, gvisor, wasm.

What the first three share: `child` is the program inside (it imports nothing of ours), `exchange` what is said to it,
`inmate` and `pool` how a started sandbox is used, once; `layout` what it finds, `door` its way out, `cgroup` and
`seccomp` two of its fences.
"""
