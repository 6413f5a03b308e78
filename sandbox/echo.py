"""A tool that gives back what it was given, as a function and as a module: what is left of such a call is the sandbox.

Standard library only: the file itself is copied to where a sandbox finds its tools.
"""

from typing import Any

WAT = """(module (memory (export "memory") 1) (func (export "alloc") (param i32) (result i32) (i32.const 1024))
  (func (export "run") (param i32 i32) (result i64)
    (i64.or (i64.shl (i64.extend_i32_u (local.get 0)) (i64.const 32)) (i64.extend_i32_u (local.get 1)))))"""


def echo(input: Any) -> Any:
    return input
