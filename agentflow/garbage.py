"""When Python looks for circles among our objects: seldom.

Called once by the entry point of each service. Nearly all we make while working goes when its last user lets it go;
Python's default would look through the youngest 700 objects many times a second, in the middle of decisions, to find
nothing.
"""

import gc

_YOUNG_MAX = 50_000
_TIMES_OLDER = 20


def collect_seldom() -> None:
    """What has been imported stays for ever, so it is not looked at again either."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG_MAX, _TIMES_OLDER, _TIMES_OLDER)
