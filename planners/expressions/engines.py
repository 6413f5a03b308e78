"""Which CEL engine speaks: Google's runtime where its wheel exists, the one over celpy's grammar elsewhere.

Both are modules that answer as `engine.Engine`; the same tests hold them to the same answers.
"""

from planners.expressions.engine import Engine


def _available() -> Engine:
    try:
        from planners.expressions import engine_google
    except ImportError:
        from planners.expressions.engine_celpy import run

        return run
    return engine_google


ENGINE: Engine = _available()
