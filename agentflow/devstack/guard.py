"""A small program that stands between us and one server, so that the server never outlives us.

Run as `python -I -S guard.py [--unprivileged] STOP_SIGNAL GRACE_S PROGRAM [ARGUMENT ...]` with a pipe as its stdin.
Standard library only, one thread, and few imports: it starts before every server and lives as long.

We hold the writing end of that pipe. When it closes (we closed it, or died in any way) or the guard is asked to
terminate, the server gets the stop signal, then a grace period, then SIGKILL together with its whole process group.
Text written before the pipe closes replaces the grace period. If the guard itself is killed, Linux kills the server
with it. The guard prints the server's process id on stdout and ends with the server's exit code, 128 + N when
signal N ended it; everything the server prints goes to the guard's stderr.
"""

import ctypes
import os
import select
import signal
import sys
import time
from contextlib import suppress
from typing import NoReturn

_PR_SET_PDEATHSIG = 1
_CLONE_NEWUSER = 0x10000000
_NOBODY = 65534
_CANNOT_START = 127
_CANNOT_LEAVE_ROOT = 126
_END_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def main(arguments: list[str]) -> int:
    unprivileged = arguments[0] == "--unprivileged"
    stop_signal, grace_s, *command = arguments[1:] if unprivileged else arguments
    woken, waker = os.pipe()
    os.set_blocking(waker, False)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    asked_to_end: list[int] = []
    for number in _END_SIGNALS:
        signal.signal(number, lambda received, _: asked_to_end.append(received))
    signal.signal(signal.SIGCHLD, lambda *_: None)  # only to be woken

    server = _start(command, unprivileged=unprivileged)
    os.write(1, b"%d\n" % server)

    asked_grace = b""
    while not _has_ended(server) and not asked_to_end:
        readable, _, _ = select.select([0, woken], [], [])
        if woken in readable:
            os.read(woken, 4096)
        if 0 in readable:
            received = os.read(0, 64)
            if not received:
                break
            asked_grace += received
    _stop(server, int(stop_signal), float(asked_grace or grace_s), woken)
    return _reap(server)


def _start(command: list[str], *, unprivileged: bool) -> int:
    guard = os.getpid()
    # Until exec the child still has the guard's handlers, which would swallow a stop signal that comes early:
    # such a signal waits until they are gone.
    signal.pthread_sigmask(signal.SIG_BLOCK, _END_SIGNALS)
    server = os.fork()
    if server:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _END_SIGNALS)
        return server
    try:
        _become(command, guard, unprivileged=unprivileged)
    except OSError as error:
        _give_up(_CANNOT_START, f"cannot start {command[0]}: {error.strerror}")


def _become(command: list[str], guard: int, *, unprivileged: bool) -> NoReturn:
    # A group of its own: Ctrl-C in the terminal reaches us and not the server, which we then stop in order.
    os.setsid()
    if unprivileged and os.geteuid() == 0:
        _leave_root()
    if sys.platform == "linux":
        # After the change of identity, which would clear it.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != guard:
        _give_up(_CANNOT_START, "the guard died first")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    for number in (*_END_SIGNALS, signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores the last two; exec keeps that
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _END_SIGNALS)
    os.execvp(command[0], command)  # noqa: S606 - a list, and no shell


def _leave_root() -> None:
    """Be nobody in a user namespace of our own: not root for the server, yet at home in files that are root's."""
    try:
        _unshare_users()
        for name, content in (
            ("setgroups", "deny"),
            ("uid_map", f"{_NOBODY} 0 1"),
            ("gid_map", f"{_NOBODY} 0 1"),
        ):
            handle = os.open(f"/proc/self/{name}", os.O_WRONLY)
            os.write(handle, content.encode())
            os.close(handle)
    except (OSError, AttributeError) as error:
        _give_up(
            _CANNOT_LEAVE_ROOT,
            f"this server refuses to run as root, and a user namespace for it was denied ({error}): "
            "start it as an ordinary user, or allow user namespaces (in a container: CAP_SYS_ADMIN)",
        )


def _unshare_users() -> None:
    if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWUSER) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _give_up(code: int, reason: str) -> NoReturn:
    os.write(2, f"guard: {reason}\n".encode())
    os._exit(code)


def _has_ended(server: int) -> bool:
    # WNOWAIT leaves the zombie, so its process id, which is also its group's, cannot be given to another yet.
    return os.waitid(os.P_PID, server, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _stop(server: int, stop_signal: int, grace_s: float, woken: int) -> None:
    """Ask the server alone, which knows in which order its own children should end; then spare nobody."""
    deadline = time.monotonic() + grace_s
    if not _has_ended(server):
        os.kill(server, stop_signal)
    while not _has_ended(server) and (left_s := deadline - time.monotonic()) > 0:
        if select.select([woken], [], [], left_s)[0]:
            os.read(woken, 4096)
    with suppress(ProcessLookupError, PermissionError):  # no group yet; or only the zombie is left in it (macOS)
        os.killpg(server, signal.SIGKILL)


def _reap(server: int) -> int:
    code = os.waitstatus_to_exitcode(os.waitpid(server, 0)[1])
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
