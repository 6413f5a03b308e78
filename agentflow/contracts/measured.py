"""What measuring a sandbox answers: `python -m sandbox.measure` says it, `af bench sandbox` reads it."""

import msgspec


class Spread(msgspec.Struct, frozen=True):
    p50_ms: float
    p95_ms: float
    calls: int


class Measured(msgspec.Struct, frozen=True):
    """`cold` and `warm` are missing where the sandbox does not stand; `warm` also where it keeps nothing ready."""

    sandbox: str
    cold: Spread | None = None
    warm: Spread | None = None
    reason: str = ""
    hint: str = ""
    holds: bool | None = None  # whether our promise does; None: there is none, or nobody has looked yet
