"""Something wrong in the text of an expression, with the place to point at."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """Something wrong at an offset into the text of an expression."""

    message: str
    hint: str
    offset: int = 0
