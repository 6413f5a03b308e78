"""Which CEL engine speaks: Google's runtime where its wheel exists, the one over celpy's grammar elsewhere.

Both are modules that answer as `engine.Engine`; the same tests hold them to the same answers. What is refused before
anything runs is decided by one checker for both (`check_text`): two would have to guess types alike.
"""

from planners.expressions.engine import Engine
from planners.expressions.engine_celpy.run import check_text as check_text


def _available() -> Engine:
    try:
        from planners.expressions import engine_google
    except ImportError:
        from planners.expressions.engine_celpy import run

        return run
    return engine_google


ENGINE: Engine = _available()
