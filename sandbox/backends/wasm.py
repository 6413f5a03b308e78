"""A WASM module in an instance of its own: no system calls at all, and of the host only what was granted by name.

A module is either a WASI command (`_start`, JSON on stdin and stdout, needs `wasi.stdio`) or exports `memory`,
`alloc(bytes) -> at` and `run(at, bytes) -> at << 32 | bytes`, and then needs no grant. WASI functions appear one group
at a time (`wasi.stdio`, `wasi.clock`, `wasi.random`, files by `fs.*`); sockets, signals and sleeping never. With a
granted host there is `agentflow.fetch(at, bytes) -> at << 32 | bytes`: one HTTP request, by the egress proxy. Each call
gets a new store, thrown away afterwards; a module is compiled once (Cranelift) and shared as code only.
"""

import asyncio
import contextlib
import hashlib
import os
import socket
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

import msgspec
import wasmtime

from agentflow.canonical import canonical
from agentflow.contracts.step import StepFault
from sandbox.backends.exchange import LOG_BYTES_MAX, Judgement, Report, said_too_much, took_too_long
from sandbox.backends.inmate import outcome
from sandbox.backends.layout import WORKSPACE
from sandbox.backends.unsupported import CannotRunThis
from sandbox.egress.fetching import fetch
from sandbox.policy import MIB, ExecProfile, Isolation
from sandbox.tool_call import SandboxOutcome, ToolCall, WasmModule

LAYERS = ("deadline", "imports", "linear_memory", "memory", "preopens", "store_per_call")
_CONCURRENCY = 16
_MODULE_BYTES_MAX = 32 * MIB  # compiling cannot be interrupted
_IMPORTS_MAX = 1_000
_STACK_BYTES = 512 * 1024
_TABLE_ELEMENTS_MAX = 100_000
_CODES_KEPT = 32
_NEARLY_FULL = 15 / 16
_WASI = "wasi_snapshot_preview1"
_FETCH = ("agentflow", "fetch")
_STDIO = frozenset(
    [
        "fd_write",
        "fd_read",
        "fd_close",
        "fd_seek",
        "fd_fdstat_get",
        "fd_fdstat_set_flags",
        "fd_prestat_get",
        "fd_prestat_dir_name",
        "proc_exit",
        "sched_yield",
        "args_get",
        "args_sizes_get",
        "environ_get",
        "environ_sizes_get",
    ]
)
_CLOCK = frozenset(("clock_time_get", "clock_res_get"))
_RANDOM = frozenset(("random_get",))
_FILES = frozenset(
    [
        "path_open",
        "path_filestat_get",
        "path_create_directory",
        "path_remove_directory",
        "path_unlink_file",
        "path_rename",
        "path_readlink",
        "fd_readdir",
        "fd_filestat_get",
        "fd_filestat_set_size",
        "fd_tell",
        "fd_pread",
        "fd_pwrite",
        "fd_sync",
        "fd_datasync",
        "fd_advise",
        "fd_allocate",
        "fd_prestat_get",
        "fd_prestat_dir_name",
        "fd_close",
        "fd_read",
        "fd_write",
        "fd_seek",
        "fd_fdstat_get",
    ]
)


async def open_wasm_sandbox() -> "WasmSandbox":
    return WasmSandbox()


def _engine(*, deadlines: bool) -> wasmtime.Engine:
    config = wasmtime.Config()
    config.strategy = "cranelift"
    config.epoch_interruption = deadlines
    config.max_wasm_stack = _STACK_BYTES
    config.wasm_threads = False
    config.wasm_memory64 = False
    config.wasm_multi_memory = False
    return wasmtime.Engine(config)


class _Slot:
    """An engine of its own for each call under way, so that ending one call ends no other."""

    def __init__(self, *, deadlines: bool) -> None:
        self.engine = _engine(deadlines=deadlines)
        self.modules: OrderedDict[str, wasmtime.Module] = OrderedDict()
        self.talking: socket.socket | None = None  # what its call waits for outside, where no deadline reaches

    def interrupt(self) -> None:
        self.engine.increment_epoch()
        if self.talking is not None:
            with contextlib.suppress(OSError):
                self.talking.shutdown(socket.SHUT_RDWR)


class _Denied(Exception):
    pass


class WasmSandbox:
    backend = "wasm"
    isolation: Isolation = "full"

    def __init__(self, *, without: frozenset[str] = frozenset()) -> None:
        """`without` leaves layers out: for tests that show what each of them is for."""
        self._without = without
        self._free = [_Slot(deadlines="deadline" not in without) for _ in range(_CONCURRENCY)]
        self._slots = asyncio.Semaphore(_CONCURRENCY)
        self._codes: OrderedDict[str, bytes] = OrderedDict()

    async def run(self, call: ToolCall, profile: ExecProfile) -> SandboxOutcome:
        if not isinstance(call.call, WasmModule):
            raise CannotRunThis(self.backend, "anything but a WASM module")
        loop = asyncio.get_running_loop()
        async with self._slots:
            started = loop.time()
            slot = self._free.pop()
            logs = bytearray()
            try:
                judgement = await self._within(slot, call, profile, logs)
            finally:
                self._free.append(slot)
            layers = tuple(layer for layer in LAYERS if layer not in self._without)
            took = loop.time() - started
            return outcome(judgement, profile, self.backend, self.isolation, layers, took, bytes(logs))

    async def close(self) -> None:
        """Nothing is held between calls but compiled code."""

    async def _within(self, slot: _Slot, call: ToolCall, profile: ExecProfile, logs: bytearray) -> Judgement:
        loop = asyncio.get_running_loop()
        work: asyncio.Future[Judgement] = loop.create_future()

        def perform() -> None:
            judgement = self._perform(slot, call, profile, logs)
            with contextlib.suppress(RuntimeError):  # the loop is gone: nobody waits any more
                loop.call_soon_threadsafe(work.set_result, judgement)

        # A daemon: a pool of the standard library would make the process wait at its exit for a module that loops.
        threading.Thread(target=perform, name="wasm", daemon=True).start()
        try:
            async with asyncio.timeout(profile.wall_s):
                return await asyncio.shield(work)
        except TimeoutError:
            slot.interrupt()
            await asyncio.wait([work])
            return took_too_long(profile)
        except asyncio.CancelledError:
            slot.interrupt()
            await asyncio.wait([work])
            raise

    def _perform(self, slot: _Slot, call: ToolCall, profile: ExecProfile, logs: bytearray) -> Judgement:
        """On a thread: everything of the call, ending in a judgement whatever the module does."""
        began = time.thread_time()
        instance = _Instance(slot, call, profile, logs, without=self._without)
        try:
            assert isinstance(call.call, WasmModule)
            module = self._module(slot, Path(call.call.file))
            answered = instance.answer(module)
        except (_Denied, OSError) as denied:
            return Judgement(StepFault("import_denied", str(denied)))
        except (wasmtime.Trap, wasmtime.ExitTrap, wasmtime.WasmtimeError) as ended:
            return instance.judge(ended)
        finally:
            instance.close()
        if instance.flooded or len(answered) > profile.output_bytes:
            return said_too_much(profile)
        report = Report(0, time.thread_time() - began, instance.memory_bytes)
        try:
            return Judgement(None, msgspec.json.decode(answered), report)
        except (msgspec.DecodeError, RecursionError) as error:
            return Judgement(StepFault("tool_output_invalid", f"The output is not JSON: {error}."), None, report)

    def _module(self, slot: _Slot, file: Path) -> wasmtime.Module:
        if file.stat().st_size > _MODULE_BYTES_MAX:
            raise _Denied(f"The module has more than {_MODULE_BYTES_MAX // MIB} MiB.")
        content = file.read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        module = slot.modules.get(digest)
        if module is None:
            code = self._codes.get(digest)
            if code is None:
                module = wasmtime.Module(slot.engine, content)
                if len(module.imports) > _IMPORTS_MAX:
                    raise _Denied(f"The module has more than {_IMPORTS_MAX} imports.")
                self._codes[digest] = bytes(module.serialize())
            else:
                module = wasmtime.Module.deserialize(slot.engine, code)
            slot.modules[digest] = module
        for kept in (slot.modules, self._codes):
            while len(kept) > _CODES_KEPT:
                kept.popitem(last=False)
        return module


class _Instance:
    """One store, one call."""

    def __init__(
        self, slot: _Slot, call: ToolCall, profile: ExecProfile, logs: bytearray, *, without: frozenset[str]
    ) -> None:
        self._slot, self._call, self._profile, self._without = slot, call, profile, without
        self._logs = logs
        self._answer = bytearray()
        self._input = canonical(call.input)
        self._stdin: int | None = None
        self._memory: wasmtime.Memory | None = None
        self._peak = 0
        self.flooded = False
        self._store = wasmtime.Store(slot.engine)
        if "deadline" not in without:
            self._store.set_epoch_deadline(1)
        if "memory" not in without:
            self._store.set_limits(
                memory_size=profile.memory_bytes, table_elements=_TABLE_ELEMENTS_MAX, instances=1, tables=8, memories=1
            )

    @property
    def memory_bytes(self) -> int:
        return self._peak if self._memory is None else self._memory.data_len(self._store)

    def answer(self, module: wasmtime.Module) -> bytes:
        linker = self._linker(module)
        instance = linker.instantiate(self._store, module)
        exports = instance.exports(self._store)
        memory = exports.get("memory")
        self._memory = memory if isinstance(memory, wasmtime.Memory) else None
        command = exports.get("_start")
        if isinstance(command, wasmtime.Func):
            try:
                command(self._store)
            except wasmtime.ExitTrap as ended:
                if ended.code != 0:
                    raise
            return bytes(self._answer)
        alloc, run = exports.get("alloc"), exports.get("run")
        if not isinstance(alloc, wasmtime.Func) or not isinstance(run, wasmtime.Func) or self._memory is None:
            raise _Denied("The module exports neither `_start` nor `memory`, `alloc` and `run`.")
        at = alloc(self._store, len(self._input))
        self._memory.write(self._store, self._input, at)
        packed = run(self._store, at, len(self._input))
        length = packed & 0xFFFFFFFF
        if length > self._profile.output_bytes:
            self.flooded = True
            return b""
        return bytes(self._memory.read(self._store, packed >> 32 & 0xFFFFFFFF, (packed >> 32 & 0xFFFFFFFF) + length))

    def judge(self, ended: Exception) -> Judgement:
        if self.flooded:
            return said_too_much(self._profile)
        text = str(ended).strip().splitlines()
        said = text[-1].strip() if text else type(ended).__name__
        if isinstance(ended, wasmtime.ExitTrap):
            return Judgement(StepFault("tool_error", f"The module ended with exit code {ended.code}."))
        if "unknown import" in str(ended):
            return Judgement(StepFault("import_denied", f"The module used what it was not granted: {said}."))
        # Growing fails inside, where a module may do anything about it; most of them trap.
        full = self.memory_bytes > self._profile.memory_bytes * _NEARLY_FULL
        if full or "memory minimum size" in str(ended):
            bound = f"The tool needed more than {self._profile.memory_bytes // MIB} MiB of memory."
            return Judgement(StepFault("memory_exceeded", bound))
        return Judgement(StepFault("tool_crashed", f"The module trapped: {said}."))

    def close(self) -> None:
        """The store goes, with whatever state a trap may have left in it."""
        self._peak = self.memory_bytes
        self._memory = None
        self._store.close()
        if self._stdin is not None:
            os.close(self._stdin)

    def _linker(self, module: wasmtime.Module) -> wasmtime.Linker:
        """Only what was granted is there; anything else of WASI traps when it is used, and nothing else exists."""
        outward = self._profile.egress and self._call.egress is not None
        own = {(_WASI, wanted.name) for wanted in module.imports} | ({_FETCH} if outward else set())
        asked = {(wanted.module, wanted.name) for wanted in module.imports}
        if _FETCH in asked and not outward:
            raise _Denied("The module asks for agentflow.fetch: grant the tool a host (`network.http:<host>`).")
        foreign = sorted(f"{wanted[0]}.{wanted[1]}" for wanted in asked - own)
        if foreign:
            raise _Denied(f"The module asks for what no host gives: {', '.join(foreign[:5])}.")
        linker = wasmtime.Linker(self._slot.engine)
        names = {wanted.name for wanted in module.imports if wanted.module == _WASI and wanted.name is not None}
        if _FETCH in asked:
            signature = wasmtime.FuncType([wasmtime.ValType.i32()] * 2, [wasmtime.ValType.i64()])
            linker.define_func(*_FETCH, signature, self._fetch, access_caller=True)
        granted = names if "imports" in self._without else names & self._granted()
        if granted:
            self._store.set_wasi(self._wasi())
            everything = wasmtime.Linker(self._slot.engine)
            everything.define_wasi()
            for name in granted:
                linker.define(self._store, _WASI, name, everything.get(self._store, _WASI, name))
        linker.define_unknown_imports_as_traps(module)
        return linker

    def _fetch(self, caller: wasmtime.Caller, at: int, length: int) -> int:
        """The module's one request: read from its memory, made by us through its door, answered into its memory."""
        memory, alloc = caller.get("memory"), caller.get("alloc")
        if not isinstance(memory, wasmtime.Memory) or not isinstance(alloc, wasmtime.Func):
            raise _Denied("The module exports no `memory` and `alloc` to answer into.")
        assert self._call.egress is not None
        asked = bytes(memory.read(caller, at, at + min(length, LOG_BYTES_MAX)))
        answer = msgspec.json.encode(
            fetch(
                self._call.egress,
                asked,
                timeout_s=self._profile.wall_s,
                bytes_max=self._profile.output_bytes,
                opened=self._talk,
            )
        )
        self._slot.talking = None
        place: int = alloc(caller, len(answer))
        memory.write(caller, answer, place)
        return place << 32 | len(answer)

    def _talk(self, connection: socket.socket) -> None:
        self._slot.talking = connection

    def _granted(self) -> frozenset[str]:
        permissions = set(self._profile.permissions)
        every = "wasi.*" in permissions
        granted: frozenset[str] = frozenset()
        for permission, functions in (("wasi.stdio", _STDIO), ("wasi.clock", _CLOCK), ("wasi.random", _RANDOM)):
            if every or permission in permissions:
                granted |= functions
        if self._profile.readable or self._profile.writable or self._call.workspace is not None:
            granted |= _FILES
        return granted

    def _wasi(self) -> wasmtime.WasiConfig:
        wasi = wasmtime.WasiConfig()
        wasi.env = list(self._profile.environment.items())
        self._stdin = os.memfd_create("input", os.MFD_CLOEXEC)
        os.write(self._stdin, self._input)
        wasi.stdin_file = f"/proc/self/fd/{self._stdin}"
        wasi.stdout_custom = self._bounded(self._answer, self._profile.output_bytes, ends=True)
        wasi.stderr_custom = self._bounded(self._logs, LOG_BYTES_MAX, ends=False)
        if "preopens" in self._without:
            wasi.preopen_dir("/", "/", fs_mutable=False)
        for path in self._profile.readable:
            wasi.preopen_dir(path, path, fs_mutable=False)
        for path in self._profile.writable:
            wasi.preopen_dir(path, path, fs_mutable=True)
        if self._call.workspace is not None:
            wasi.preopen_dir(self._call.workspace, WORKSPACE, fs_mutable=True)
        return wasi

    def _bounded(self, sink: bytearray, bytes_max: int, *, ends: bool) -> Callable[[bytes], int | None]:
        """Keeps what fits. What ends with too much is interrupted at its next step."""

        def written(data: bytes) -> int | None:
            room = bytes_max - len(sink)
            sink.extend(data[: max(room, 0)])
            if ends and len(data) > room:
                self.flooded = True
                self._slot.engine.increment_epoch()
            return None

        return written
