"""Tools that want more than their share. Standard library only: they run inside."""

import os
import subprocess
import sys
import time


def forks(input):
    """Children that stay, until no more can be had."""
    while True:
        if os.fork() == 0:
            time.sleep(600)
            os._exit(0)


def allocates(input):
    held = []
    while True:
        held.append(b"x" * (8 * 1024 * 1024))


def allocates_in_children(input):
    """Each within its own limit, all of them together not."""
    code = "x = b'x' * (100 << 20); import time; time.sleep(600)"
    children = [subprocess.Popen([sys.executable, "-S", "-c", code]) for _ in range(8)]
    _, status = os.wait()  # none of them ends by itself
    raise RuntimeError(f"one of {len(children)} ended with {status}")


def fills_disk(input):
    for number in range(100_000):
        with open(f"/sandbox/{number}", "wb") as file:
            file.write(b"x" * 1024 * 1024)


def many_files(input):
    for number in range(1_000_000):
        with open(f"/sandbox/{number}", "wb"):
            pass


def floods_output(input):
    return "x" * (64 * 1024 * 1024)


def floods_log(input):
    for _ in range(1_000):
        sys.stderr.write("x" * 65_536)
    return "done"


def deep_json(input):
    value = []
    for _ in range(5_000):
        value = [value]
    return value


def lives_on(input):
    """Double fork, a session of its own, deaf to signals: and the parent hangs or returns."""
    import signal

    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)
            os.execv(
                sys.executable, [sys.executable, "-S", "-c", "import time\nwhile True: time.sleep(1)", input["mark"]]
            )
        os._exit(0)
    if input["then"] == "hang":
        while True:
            time.sleep(1)
    return "left"


def quick(input):
    return input
