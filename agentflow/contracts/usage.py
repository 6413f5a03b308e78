"""What a step used and what that costs, as its worker tells it with the result. Pure.

Tokens are counted in kinds that do not overlap, so that their sum is what the provider counts. Money is in millionths
of a dollar, as whole numbers; a price that nobody knows is None, and never nought.
"""

from decimal import ROUND_HALF_UP, Decimal, InvalidOperation

import msgspec

from agentflow.errors import Invalid

MICRODOLLARS = 1_000_000
TOKEN_KINDS = ("input", "cache_read", "cache_write", "output", "reasoning", "audio")
_COUNT_MAX = 2**53 - 1  # what JSON carries without a loss
_RESOURCE_CHARS_MAX = 256


class Usage(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that was used: a model, a tool, a service."""

    resource: str
    microdollars: int | None = None  # None: its price is not known
    agent: str = ""
    input: int = 0  # tokens that were read anew
    cache_read: int = 0
    cache_write: int = 0
    output: int = 0  # without those of reasoning
    reasoning: int = 0
    audio: int = 0

    @property
    def tokens(self) -> int:
        return self.input + self.cache_read + self.cache_write + self.output + self.reasoning + self.audio


class BadUsage(Invalid):
    code = "AF1803"

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"What was used cannot be counted: {reason}.",
            hint='Give whole numbers of tokens by kind and dollars as text, such as dollars="0.0021".',
        )


def usage_of(resource: str, *, dollars: str | Decimal | int | None, tokens: dict[str, int]) -> Usage:
    """From what an agent says. Raises `BadUsage`: a wrong count must not look like a small one."""
    if not resource or len(resource) > _RESOURCE_CHARS_MAX:
        raise BadUsage(f"a resource has a name of 1 to {_RESOURCE_CHARS_MAX} characters")
    for kind, count in tokens.items():
        if kind not in TOKEN_KINDS:
            raise BadUsage(f"{kind!r} is none of {', '.join(TOKEN_KINDS)}")
        if type(count) is not int or not 0 <= count <= _COUNT_MAX:
            raise BadUsage(f"{kind} is {count!r}")
    price = None if dollars is None else microdollars(dollars)
    return msgspec.convert({"resource": resource, "microdollars": price, **tokens}, Usage)


def microdollars(dollars: str | Decimal | int) -> int:
    try:
        exact = Decimal(dollars) * MICRODOLLARS
        whole = int(exact.to_integral_value(ROUND_HALF_UP))
    except (InvalidOperation, TypeError, ValueError, OverflowError):
        raise BadUsage(f"dollars is {dollars!r}") from None
    if not 0 <= whole <= _COUNT_MAX:
        raise BadUsage(f"dollars is {dollars!r}")
    return whole


def tool_price(per_call: float, per_second: float, took_ms: int) -> int:
    """By a tool's cost model, in millionths; its numbers are taken as they are written, not as a float stores them."""
    exact = Decimal(str(per_call)) + Decimal(str(per_second)) * took_ms / 1000
    return microdollars(exact)


def dollars_text(micro: int) -> str:
    """Exact, for people and programs: `0.002100`."""
    return f"{micro // MICRODOLLARS}.{micro % MICRODOLLARS:06}"
