"""`python -m tests.faults.wrong_clock`: a control plane on a machine whose wall clock is wrong, as `WRONG` says.

`+24h` from the beginning; `-24h` and `frozen` from SIGUSR1 on, so that it happens while something waits for time. Only
the wall clock: the one that never steps back is right on any machine.
"""

import os
import signal
import sys
import time

from control_plane.__main__ import main

_DAY_NS = 24 * 3600 * 1_000_000_000
_right = time.time_ns


def _go_wrong(how: str) -> None:
    begun_ns = _right()
    wrong = {
        "+24h": lambda: _right() + _DAY_NS,
        "-24h": lambda: _right() - _DAY_NS,
        "frozen": lambda: begun_ns,
    }[how]
    time.time_ns = wrong


if __name__ == "__main__":
    how = os.environ["WRONG"]  # noqa: TID251 - a test's own, no setting of the product
    if how == "+24h":
        _go_wrong(how)
    else:
        signal.signal(signal.SIGUSR1, lambda *_: _go_wrong(how))
    sys.exit(main())
