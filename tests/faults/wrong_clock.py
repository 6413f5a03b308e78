"""`python -m tests.faults.wrong_clock`: a control plane on a machine whose wall clock is wrong by `WRONG_BY_MS`.

Only the wall clock: the one that never steps back is right on any machine.
"""

import os
import sys
import time

from control_plane.__main__ import main

_right = time.time_ns
_wrong_by_ns = int(os.environ["WRONG_BY_MS"]) * 1_000_000  # noqa: TID251 - a test's own, no setting of the product

if __name__ == "__main__":
    time.time_ns = lambda: _right() + _wrong_by_ns
    sys.exit(main())
