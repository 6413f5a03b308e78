"""The program inside: reads one call from stdin, fences itself, runs the function, writes one JSON result.

Started by every backend but `wasm`, as a script in a bare interpreter, so it imports the standard library only; which
fences it must raise itself is written in the call. It splits in two: a warden, which outlives the tool to report what
it used, and the tool. Result on stdout: the tool's line, then the warden's. Whatever the tool prints goes to stderr.
As `child.py wait` it says `ready` first and can be kept until a call comes. When its stdin ends, so does the tool.
"""

import contextlib
import ctypes
import errno
import importlib
import json
import os
import resource
import select
import signal
import sys
from types import FrameType, SimpleNamespace
from typing import Any

_CLONE_NEWIPC, _CLONE_NEWUSER, _CLONE_NEWPID, _CLONE_NEWNET = 0x08000000, 0x10000000, 0x20000000, 0x40000000
_PR_SET_PDEATHSIG, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS, _SECCOMP_MODE_FILTER = 1, 22, 38, 2
_CAPABILITY_VERSION_3, _CAP_DAC_READ_SEARCH = 0x20080522, 2
_SYS_LANDLOCK_CREATE, _SYS_LANDLOCK_ADD, _SYS_LANDLOCK_RESTRICT = 444, 445, 446  # the same on every architecture
_LANDLOCK_EXECUTE, _LANDLOCK_WRITE, _LANDLOCK_READ, _LANDLOCK_READ_DIR = 1, 2, 4, 8
_LANDLOCK_ALL, _LANDLOCK_TRUNCATE = (1 << 13) - 1, 1 << 14
_SYSTEM_PLACES = (
    *("/usr", "/lib", "/lib64", "/bin", "/proc/self", "/proc/cpuinfo", "/proc/meminfo", "/proc/stat"),
    *("/dev/zero", "/dev/random", "/dev/urandom", "/etc/ld.so.cache", "/etc/localtime", "/etc/mime.types"),
    *("/etc/hosts", "/etc/resolv.conf", "/etc/nsswitch.conf", "/etc/passwd", "/etc/group"),
    *("/etc/ssl", "/etc/pki", "/etc/ca-certificates"),
)
_OOM_COUNTERS = ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control")
_PIDS_COUNTERS = ("/sys/fs/cgroup/pids.events", "/sys/fs/cgroup/pids/pids.events")
_ENDS = (signal.SIGTERM, signal.SIGALRM)
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_WARDEN_SPARE_S = 5  # after the parent's own deadline: the warden ends a tool whose worker forgot it
_ALLOW_ALL = bytes.fromhex("060000000000ff7f")  # one instruction, to learn whether filters are allowed at all

_libc = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    parent = os.getppid()
    for descriptor in _inherited():
        with contextlib.suppress(OSError):  # the listing's own is closed by now
            os.close(descriptor)
    match sys.argv[1:]:
        case ["probe", *fences]:
            _probe(fences)
            return
        case ["wait"]:
            _wait_for_a_call()
            return
    signal.pthread_sigmask(signal.SIG_BLOCK, _ENDS)
    body = _received()
    if body is None:
        return  # whoever started us went away, or has no use for us any more
    document = json.loads(body)
    results, owner = _streams()
    if "namespaces" in document["fences"]:
        _enter_namespaces()
    if document["dies_with_parent"]:
        # After the namespaces: gaining credentials in a new one makes the kernel forget this wish.
        _when_parent_dies(signal.SIGTERM)
        if os.getppid() != parent:  # it died before we wished
            _leave_no_folder()
            return
    if document["outward"]:
        _open_outward(document)
    tool = os.fork()
    if tool == 0:
        os.close(owner)
        _be_the_tool(document, document["profile"], results)
    _be_the_warden(document, tool, owner, results)
    if document["dies_with_parent"] and os.getppid() != parent:
        _leave_no_folder()


def _wait_for_a_call() -> None:
    """Split in two before the call is known, so that it need not wait for that; then hand it to the tool's half."""
    _warm_up()
    signal.pthread_sigmask(signal.SIG_BLOCK, _ENDS)
    reading, writing = os.pipe()
    tool = os.fork()
    if tool == 0:
        os.dup2(reading, 0)
        os.close(reading)
        os.close(writing)
        body = _received()
        if body is None:
            os._exit(0)
        document = json.loads(body)
        results, owner = _streams()
        os.close(owner)
        _be_the_tool(document, document["profile"], results)
    os.close(reading)
    _write(1, b"ready\n")
    body = _received()
    if body is None:
        return  # and with us the other half: the writing end closes
    document = json.loads(body)
    if document["outward"]:
        _open_outward(document)
    _write(writing, b"%d\n" % len(body))
    _write(writing, body)
    os.close(writing)
    results, owner = _streams()
    _be_the_warden(document, tool, owner, results)


def _streams() -> tuple[int, int]:
    """Where the answer goes, and where the owner is heard. What the tool prints goes to stderr; it reads nothing."""
    results, owner = os.dup(1), os.dup(0)
    os.dup2(2, 1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return results, owner


def _open_outward(document: dict[str, Any]) -> None:
    """Start what leads ordinary programs to the egress socket, and wait until it listens. It is not the tool's."""
    reading, writing = os.pipe()
    if os.fork() == 0:
        _when_parent_dies(signal.SIGKILL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDS)
        os.dup2(writing, 1)
        command = [sys.executable, "-I", "-B", document["outward"], document["given"]["AGENTFLOW_EGRESS"]]
        os.execv(sys.executable, command)  # noqa: S606 - a list, and no shell
    os.close(writing)
    os.read(reading, 16)  # its `ready`, or its end: without it the socket is still there
    os.close(reading)


def _be_the_warden(document: dict[str, Any], tool: int, owner: int, results: int) -> None:
    report = _watch_over(tool, owner, document["profile"]["wall_s"] + _WARDEN_SPARE_S)
    if document["contained"]:
        report["out_of_memory"] = _counted(_OOM_COUNTERS, "oom_kill")
        report["out_of_processes"] = _counted(_PIDS_COUNTERS, "max")
    with contextlib.suppress(OSError):  # nobody may be left to hear it
        _write(results, b"\n" + json.dumps(report).encode() + b"\n")


def _inherited() -> list[int]:
    return [number for name in os.listdir("/proc/self/fd") if (number := int(name)) > 2]  # noqa: PTH208


def _warm_up() -> None:
    """Pay now for what nearly every call needs."""
    import asyncio  # noqa: F401
    import inspect  # noqa: F401
    import traceback  # noqa: F401


def _received() -> bytes | None:
    """One call: its length in bytes as a line, then its JSON. Our stdin stays open as long as somebody wants us."""
    head = b""
    while not head.endswith(b"\n"):
        byte = os.read(0, 1)
        if not byte:
            return None
        head += byte
    body, wanted = bytearray(), int(head)
    while len(body) < wanted:
        part = os.read(0, min(wanted - len(body), 1 << 20))
        if not part:
            return None
        body += part
    return bytes(body)


def _watch_over(tool: int, owner: int, patience_s: float) -> dict[str, float | bool]:
    """The warden's part: wait for the end, or bring it about; then say what was used."""
    woken, waker = os.pipe()
    os.set_blocking(waker, False)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    ends: list[int] = []

    def end_the_tool(number: int, _frame: FrameType | None) -> None:
        ends.append(number)

    signal.signal(signal.SIGTERM, end_the_tool)
    signal.signal(signal.SIGALRM, end_the_tool)
    signal.signal(signal.SIGCHLD, lambda *_: None)  # only to be woken
    signal.setitimer(signal.ITIMER_REAL, patience_s)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDS)
    # Not reaped yet, so that its group is surely still its own.
    while os.waitid(os.P_PID, tool, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None and not ends:
        readable, _, _ = select.select([woken, owner], [], [])
        if woken in readable:
            os.read(woken, 4096)
        if owner in readable and not os.read(owner, 4096):
            break  # nobody waits for the answer any more
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(tool, signal.SIGKILL)  # the first process of its namespace, if it has one: all in there end with it
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(tool, signal.SIGKILL)  # what it left behind, where there is no namespace to end it
    _, status, usage = os.wait4(tool, 0)
    return {
        "exit_code": os.waitstatus_to_exitcode(status),
        "cpu_s": usage.ru_utime + usage.ru_stime,
        "max_rss_bytes": usage.ru_maxrss * 1024,
    }


def _counted(places: tuple[str, ...], name: str) -> bool:
    """Whether the control group that a container sees as its own has counted this. Elsewhere the parent looks."""
    for place in places:
        with contextlib.suppress(OSError), open(place) as file:  # noqa: PTH123
            return any(line.startswith(f"{name} ") and line.split()[1] != "0" for line in file)
    return False


def _leave_no_folder() -> None:
    """The worker removes the working folder; when the worker is dead, nobody else is left to do it."""
    import shutil

    shutil.rmtree(os.path.realpath(os.curdir), ignore_errors=True)


def _be_the_tool(document: dict[str, Any], profile: dict[str, Any], results: int) -> None:
    """Raise the fences, then answer. A fence that does not stand raises: the tool's code is never imported."""
    os.setsid()  # no terminal of ours, and a group of its own for the warden to end
    _when_parent_dies(signal.SIGKILL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDS)
    os.environ.clear()  # noqa: TID251 - the interpreter puts LC_CTYPE there by itself; only grants may stay
    os.environ.update(profile["environment"] | document["given"])  # noqa: TID251
    sys.path[:0] = document["path"]
    _raise_fences(document, profile)
    try:
        answer = _encoded(_run_command(document, profile) if document["argv"] else _call(document))
    except _Faulty as fault:
        answer = json.dumps(fault.answer).encode()
    except MemoryError:
        answer = b'{"memory":true}'
    except BaseException as error:  # noqa: BLE001 - whatever a tool raises, SystemExit too, is its answer
        answer = _encoded_error(error)
    try:
        sys.stdout.flush()
        sys.stderr.flush()
        _write(results, answer)
    finally:
        os._exit(0)


def _raise_fences(document: dict[str, Any], profile: dict[str, Any]) -> None:
    """In an order in which no fence is in the way of the next one."""
    fences = document["fences"]
    if "rlimits" in fences:
        _limit(profile, document["bounds"])
    if "landlock" in fences:
        _fence_files(
            [*document["path"], *profile["readable"], *document["readable"]],
            [os.curdir, *profile["writable"], *document["writable"]],
        )
    if "user" in fences:
        os.setgroups([])
        os.setresgid(document["user"], document["user"], document["user"])
        os.setresuid(document["user"], document["user"], document["user"])
        _when_parent_dies(signal.SIGKILL)  # the kernel forgets this wish with the identity
    if "capabilities" in fences:
        _drop_capabilities()
    if "no_new_privileges" in fences:
        _checked(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    if "seccomp" in fences:
        _filter_system_calls(bytes.fromhex(document["seccomp"]))


class _Faulty(Exception):
    def __init__(self, **answer: Any) -> None:
        self.answer = answer


def _run_command(document: dict[str, Any], profile: dict[str, Any]) -> Any:
    """The input on its stdin, JSON back from its stdout, of which no more is read than may be answered."""
    import subprocess
    import threading

    given = json.dumps(document["input"]).encode()
    with subprocess.Popen(document["argv"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        feeding = threading.Thread(target=_feed, args=(running.stdin, given), daemon=True)
        feeding.start()
        answered = bytearray()
        while part := running.stdout.read(1 << 16):
            answered += part
            if len(answered) > profile["output_bytes"]:
                raise _Faulty(flood=True)
        code = running.wait()
    if code != 0:
        ending = f"exit code {code}" if code > 0 else f"signal {-code}"
        raise _Faulty(error=f"the command ended with {ending}", retryable=False)
    try:
        return json.loads(answered)
    except (ValueError, RecursionError) as error:
        raise _Faulty(invalid=str(error)) from None


def _feed(stream: Any, data: bytes) -> None:
    with contextlib.suppress(OSError):  # a command need not read its input
        _write(stream.fileno(), data)
        stream.close()


def _call(document: dict[str, Any]) -> Any:
    module, _, name = document["call"].partition(":")
    try:
        function: Any = importlib.import_module(module)
    except Exception as error:
        error.add_note(_where(error))
        raise
    for part in name.split("."):
        function = getattr(function, part)
    import inspect  # after the tool's own imports, which often pay for it; it is a third of a bare start

    arguments = {}
    if "context" in inspect.signature(function).parameters:
        arguments["context"] = SimpleNamespace(**document["context"])
    output = function(document["input"], **arguments)
    if inspect.isawaitable(output):
        import asyncio  # most tools are plain functions, and this import costs more than starting Python

        return asyncio.run(_awaited(output))
    return output


async def _awaited(output: Any) -> Any:
    return await output


def _encoded(output: Any) -> bytes:
    try:
        return json.dumps({"output": output}, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as error:
        return json.dumps({"invalid": f"{error}"}).encode()


def _where(error: BaseException) -> str:
    """The end of a traceback, without this machine's folders and without our own frames."""
    import traceback

    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if "importlib" not in frame.filename and frame.filename != __file__
    ]
    return "\n".join(
        f"  {frame.filename.rpartition(os.sep)[2]}:{frame.lineno} in {frame.name}: {frame.line}"
        for frame in frames[-5:]
    )


def _encoded_error(error: BaseException) -> bytes:
    import traceback

    traceback.print_exception(error)
    if isinstance(error, OSError) and error.errno in _DISK_FULL:
        return b'{"disk":true}'
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - an exception of the tool's own making may fail even at this
        text = "(its text could not be read)"
    retryable = getattr(error, "retryable", False) is True
    message = f"{type(error).__name__}: {text}" if text else type(error).__name__
    message = "\n".join([message, *map(str, getattr(error, "__notes__", ()))])
    return json.dumps({"error": message[:4000], "retryable": retryable}).encode()


def _write(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def _limit(profile: dict[str, Any], bounds: dict[str, int]) -> None:
    # Soft and hard are equal, so that CPU time ends in SIGKILL: the first process of a namespace ignores SIGXCPU.
    wanted = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_CPU: profile["cpu_s"],
        resource.RLIMIT_FSIZE: profile["file_bytes"],
        resource.RLIMIT_NOFILE: profile["files_max"],
    }
    if "address_space" in bounds:
        wanted[resource.RLIMIT_AS] = bounds["address_space"]
    if "processes" in bounds:
        wanted[resource.RLIMIT_NPROC] = bounds["processes"]
    for kind, bound in wanted.items():
        _, ceiling = resource.getrlimit(kind)
        allowed = bound if ceiling == resource.RLIM_INFINITY else min(bound, ceiling)
        resource.setrlimit(kind, (allowed, allowed))


def _enter_namespaces() -> None:
    """New process ids, IPC and network: an empty one, whose loopback is down too."""
    user, group = os.getuid(), os.getgid()
    wanted = _CLONE_NEWPID | _CLONE_NEWIPC | _CLONE_NEWNET
    if user != 0:
        wanted |= _CLONE_NEWUSER  # what lets an ordinary user make the others
    _checked(_libc.unshare(wanted))
    if user != 0:
        for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            with open(f"/proc/self/{name}", "w") as file:  # noqa: PTH123 - no pathlib: start-up time is paid per call
                file.write(text)


def _when_parent_dies(number: signal.Signals) -> None:
    _checked(_libc.prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0))


class _CapabilityHeader(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _CapabilityData(ctypes.Structure):
    _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32))


def _drop_capabilities() -> None:
    """Keep none, but for root the reading of files: which ones, the file fence has already said."""
    header = _CapabilityHeader(_CAPABILITY_VERSION_3, 0)
    data = (_CapabilityData * 2)()
    _checked(_libc.capget(ctypes.byref(header), data))
    kept = data[0].permitted & (1 << _CAP_DAC_READ_SEARCH) if os.getuid() == 0 else 0
    data[0], data[1] = _CapabilityData(kept, kept, 0), _CapabilityData(0, 0, 0)
    _checked(_libc.capset(ctypes.byref(header), data))


class _FilterProgram(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def _filter_system_calls(program: bytes) -> None:
    """`program` is BPF, built outside by `seccomp`: eight bytes an instruction."""
    filtering = _FilterProgram(len(program) // 8, program)
    _checked(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    _checked(_libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(filtering), 0, 0))


class _PathRule(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("folder", ctypes.c_int32))


def _fence_files(readable: list[str], writable: list[str]) -> None:
    """From here on: read what the interpreter and the tool need, write in the working folder, nothing else."""
    handled = _LANDLOCK_ALL | (_LANDLOCK_TRUNCATE if _landlock_version() >= 3 else 0)
    attribute = ctypes.c_uint64(handled)
    rules = _checked(_libc.syscall(_SYS_LANDLOCK_CREATE, ctypes.byref(attribute), ctypes.c_size_t(8), 0))
    read = _LANDLOCK_EXECUTE | _LANDLOCK_READ | _LANDLOCK_READ_DIR
    # Not all of sys.path: an editable install would open a whole checkout, with whatever lies in it.
    for path in (*_SYSTEM_PLACES, sys.prefix, sys.base_prefix, *readable):
        _allow(rules, path, read)
    _allow(rules, os.devnull, _LANDLOCK_READ | _LANDLOCK_WRITE)
    for path in writable:
        _allow(rules, path, handled)
    _checked(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    _checked(_libc.syscall(_SYS_LANDLOCK_RESTRICT, rules, 0))
    os.close(rules)


def _allow(rules: int, path: str, access: int) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # what does not exist needs no permission
    if not os.path.isdir(path):  # noqa: PTH112
        access &= _LANDLOCK_EXECUTE | _LANDLOCK_READ | _LANDLOCK_WRITE | _LANDLOCK_TRUNCATE
    rule = _PathRule(access, place)
    _checked(_libc.syscall(_SYS_LANDLOCK_ADD, rules, 1, ctypes.byref(rule), 0))
    os.close(place)


def _landlock_version() -> int:
    return _checked(_libc.syscall(_SYS_LANDLOCK_CREATE, None, ctypes.c_size_t(0), 1))


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def _probe(fences: list[str]) -> None:
    """Try the fences once, as a call would; exit 0 if all of them stand."""
    try:
        if "namespaces" in fences:
            _enter_namespaces()
        if (tool := os.fork()) == 0:
            try:
                if "landlock" in fences:
                    _fence_files([], [os.curdir])
                if "capabilities" in fences:
                    _drop_capabilities()
                if "seccomp" in fences:
                    _filter_system_calls(_ALLOW_ALL)
            except OSError as error:
                print(error, file=sys.stderr, flush=True)  # noqa: T201 - this is the answer to the parent
                os._exit(1)
            os._exit(0)
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(tool, 0)[1]))
    except OSError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
