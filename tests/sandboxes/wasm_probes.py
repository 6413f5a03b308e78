"""The same attempts from inside a WASM module, as far as a module can make them: written as text, compiled here.

A module has no system calls. What it can try is WASI: open paths from its one granted folder, use descriptors and
sockets nobody gave it, read the environment, raise signals. For everything else it can only ask the host for a
function of that name, which is tried too.
"""

import wasmtime

REACHED, REFUSED = '"reached"', '"refused"'
_TEXT = 4096
_SCAN = 64


def module(probe: str, *, paths: dict[str, str]) -> bytes:
    """The module for one probe. `paths` are the host paths that file probes want."""
    if probe in paths:
        return _compiled(_OPENING, body=_opening(paths[probe]))
    if probe in _BY_WASI:
        wanted, body = _BY_WASI[probe]
        return _compiled(wanted, body=body)
    return _compiled(f'(import "env" "{probe}" (func $ask (result i32)))', body="(call $ask)")


def _compiled(imports: str, *, body: str) -> bytes:
    """`body` leaves 1 for reached and 0 for refused."""
    reached, refused = len(REACHED), len(REFUSED)
    return bytes(
        wasmtime.wat2wasm(
            f"""(module
  {imports}
  (memory (export "memory") 2)
  (data (i32.const 64) {_quoted(REACHED)})
  (data (i32.const 128) {_quoted(REFUSED)})
  (func $try (result i32) (local $fd i32) {body})
  (func (export "alloc") (param i32) (result i32) (i32.const 65536))
  (func (export "run") (param i32 i32) (result i64)
    (if (result i64) (call $try)
      (then (i64.or (i64.shl (i64.const 64) (i64.const 32)) (i64.const {reached})))
      (else (i64.or (i64.shl (i64.const 128) (i64.const 32)) (i64.const {refused}))))))"""
        )
    )


_OPENING = (
    '(import "wasi_snapshot_preview1" "path_open" '
    "(func $open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))"
)


def _quoted(text: str) -> str:
    return '"' + "".join(f"\\{byte:02x}" for byte in text.encode()) + '"'


def _opening(path: str) -> str:
    """Any descriptor, the absolute path, and the path as seen by climbing out of the granted folder."""
    written = ""
    attempts = ""
    place = _TEXT
    for name in (path, path.lstrip("/"), "../" * 12 + path.lstrip("/"), ".//../" + path.lstrip("/")):
        for offset, byte in enumerate(name.encode()):
            written += f"(i32.store8 (i32.const {place + offset}) (i32.const {byte}))"
        opened = (
            f"(call $open (local.get $fd) (i32.const 1) (i32.const {place}) (i32.const {len(name.encode())}) "
            "(i32.const 0) (i64.const 2) (i64.const 0) (i32.const 0) (i32.const 32))"
        )
        attempts += f"(if (i32.eqz {opened}) (then (return (i32.const 1))))"
        place += 512
    return f"""{written} (local.set $fd (i32.const 3))
      (loop $next {attempts}
        (local.set $fd (i32.add (local.get $fd) (i32.const 1)))
        (br_if $next (i32.lt_u (local.get $fd) (i32.const 10))))
      (i32.const 0)"""


def _each_descriptor(call: str, *, first: int) -> str:
    return f"""(local.set $fd (i32.const {first}))
      (loop $next (if (i32.eqz {call}) (then (return (i32.const 1))))
        (local.set $fd (i32.add (local.get $fd) (i32.const 1)))
        (br_if $next (i32.lt_u (local.get $fd) (i32.const {_SCAN}))))
      (i32.const 0)"""


_SENDING = '(import "wasi_snapshot_preview1" "sock_send" (func $f (param i32 i32 i32 i32 i32) (result i32)))'
_SENT = "(call $f (local.get $fd) (i32.const 8) (i32.const 1) (i32.const 0) (i32.const 32))"
_ENVIRONMENT = '(import "wasi_snapshot_preview1" "environ_sizes_get" (func $f (param i32 i32) (result i32)))'
_COUNTED = "(drop (call $f (i32.const 16) (i32.const 20))) (i32.ne (i32.load (i32.const 16)) (i32.const 0))"
_BY_WASI = {
    **dict.fromkeys(("connect_worker_port", "connect_outside"), (_SENDING, _each_descriptor(_SENT, first=0))),
    **dict.fromkeys(("inherited_environment", "canary_in_environment"), (_ENVIRONMENT, _COUNTED)),
    "inherited_descriptors": (
        '(import "wasi_snapshot_preview1" "fd_fdstat_get" (func $f (param i32 i32) (result i32)))',
        _each_descriptor("(call $f (local.get $fd) (i32.const 32))", first=4),
    ),
    "signal_worker": (
        '(import "wasi_snapshot_preview1" "proc_raise" (func $f (param i32) (result i32)))',
        "(i32.eqz (call $f (i32.const 9)))",
    ),
    "abstract_socket": (
        '(import "wasi_snapshot_preview1" "sock_accept" (func $f (param i32 i32 i32) (result i32)))',
        _each_descriptor("(call $f (local.get $fd) (i32.const 0) (i32.const 32))", first=0),
    ),
}
