"""One way of fencing a call per file, each behind `sandbox.runner.Sandbox`.

`process` starts and judges, `child` is the program that runs inside and therefore imports nothing of ours.
"""
