"""A WASM module has no sockets: with a granted host it may ask for one HTTP request at a time, by the egress proxy."""

import asyncio

import wasmtime

from sandbox.runner import open_sandbox
from sandbox.tool_call import WasmModule
from tests.sandboxes.conftest import call_of, profile_for

FETCHES = """(module (import "agentflow" "fetch" (func $fetch (param i32 i32) (result i64)))
  (memory (export "memory") 16) (global $top (mut i32) (i32.const 1024))
  (func (export "alloc") (param $n i32) (result i32) (local $at i32)
    (local.set $at (global.get $top)) (global.set $top (i32.add (global.get $top) (local.get $n))) (local.get $at))
  (func (export "run") (param i32 i32) (result i64) (call $fetch (local.get 0) (local.get 1))))"""
GRANTED = {"permissions": ("network.http:example.com",)}


async def fetched(tmp_path, answer, *, input=None, **needs):
    file, path = tmp_path / "fetch.wasm", tmp_path / "proxy.sock"
    file.write_bytes(wasmtime.wat2wasm(FETCHES))
    sandbox = await open_sandbox("wasm")
    async with await asyncio.start_unix_server(answer, path):
        call = call_of(WasmModule(str(file)), tmp_path, input or {"url": "https://example.com/a"}, egress=str(path))
        outcome = await sandbox.run(call, profile_for(sandbox, tmp_path, **needs))
    await sandbox.close()
    return outcome


async def page(reader, writer):
    head = await reader.readuntil(b"\r\n\r\n")
    said = head.split(b"\r\n")[0]
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%b" % (len(said), said))
    await writer.drain()
    writer.close()


async def test_a_module_with_a_granted_host_reaches_the_proxy_and_nothing_else(tmp_path):
    outcome = await fetched(tmp_path, page, **GRANTED)

    assert outcome.fault is None, outcome
    assert (outcome.output["status"], outcome.output["body"]) == (200, "GET https://example.com/a HTTP/1.1")


async def test_a_module_without_one_is_told_what_it_lacks(tmp_path):
    outcome = await fetched(tmp_path, page)

    assert outcome.fault.code == "import_denied"
    assert "network.http:<host>" in outcome.fault.message


async def test_what_is_no_request_is_an_answer_and_not_a_crash(tmp_path):
    outcome = await fetched(tmp_path, page, input={"uri": "x"}, **GRANTED)

    assert "is not understood" in outcome.output["error"]


async def test_a_module_that_waits_for_an_answer_is_ended_by_its_deadline(tmp_path):
    gone = asyncio.Event()

    async def silent(reader, writer):
        await reader.read()
        gone.set()
        writer.close()

    outcome = await fetched(tmp_path, silent, timeout_s=0.3, **GRANTED)
    await asyncio.wait_for(gone.wait(), timeout=5)

    assert outcome.fault.code == "tool_timeout"
