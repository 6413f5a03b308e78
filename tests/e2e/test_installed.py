"""Our wheel, installed into a clean environment, serves a first run within a minute, without Docker (UA-17 b).

The warm start is measured by `python -m bench start`: a bound of seconds means nothing beside other tests.
"""

import time

from bench.subjects.start import Installed, first_result


def test_the_installed_wheel_is_up_and_has_served_a_first_run_within_a_minute(tmp_path):
    began_s = time.monotonic()
    installed = Installed(tmp_path)
    with installed.dev():
        assert first_result(installed) == "completed"
    assert time.monotonic() - began_s <= 60
