"""What an expression may cost, decided before the engine sees it.

The engine itself stops at a nesting of 32 and at 10,000 iterations an evaluation. That leaves three ways to
hang a control plane: macros inside macros, chains of macros that double a value, and lists so long that
`map` and `filter` (whose cost is the square of the length) take seconds. `limits` has the bounds.
"""

from collections.abc import Sequence
from typing import Any

from agentflow import limits
from planners.expressions.lexer import Token

MACROS = frozenset({"all", "exists", "exists_one", "map", "filter"})
_LIST_BUILDERS = frozenset({"map", "filter"})


class TooCostly(Exception):
    def __init__(self, message: str, hint: str, offset: int) -> None:
        super().__init__(message)
        self.message, self.hint, self.offset = message, hint, offset


def refuse_costly(text: str, words: Sequence[Token]) -> None:
    if len(text) > limits.EXPRESSION_CHARS_MAX:
        message = f"The expression has {len(text)} characters; {limits.EXPRESSION_CHARS_MAX} are allowed."
        raise TooCostly(message, "Let an agent work this out and give back the answer.", 0)
    brackets: list[bool] = []  # of each open bracket: does it belong to a macro?
    macros = additions = 0
    for at, word in enumerate(words):
        if word.kind != "symbol":
            continue
        if word.text in "([{":
            brackets.append(is_macro(words, at))
            macros += brackets[-1]
            if sum(brackets) > limits.EXPRESSION_MACRO_DEPTH_MAX:
                message = f"Macros are nested more than {limits.EXPRESSION_MACRO_DEPTH_MAX} deep."
                raise TooCostly(message, "Let an agent walk through nested lists.", words[at - 1].start)
            if macros > limits.EXPRESSION_MACROS_MAX:
                message = f"There are more than {limits.EXPRESSION_MACROS_MAX} macros (map, filter, all, exists)."
                raise TooCostly(message, "Let an agent work this out.", words[at - 1].start)
        elif word.text in ")]}" and brackets:
            brackets.pop()
        elif word.text == "+":
            additions += 1
            if additions > limits.EXPRESSION_ADDITIONS_MAX:
                message = f"There are more than {limits.EXPRESSION_ADDITIONS_MAX} additions."
                raise TooCostly(message, "In an input, join text outside of `${…}`.", word.start)


def is_macro(words: Sequence[Token], at: int) -> bool:
    """Whether the bracket at `at` opens the arguments of a macro."""
    return words[at].text == "(" and at >= 2 and words[at - 1].text in MACROS and words[at - 2].text == "."


def builds_lists(words: Sequence[Token]) -> bool:
    return any(is_macro(words, at) and words[at - 1].text in _LIST_BUILDERS for at in range(len(words)))


def longest_collection(value: Any) -> int:
    """The length of the longest list or mapping inside a JSON value."""
    longest, rest = 0, [value]
    while rest:
        item = rest.pop()
        if isinstance(item, dict | list):
            longest = max(longest, len(item))
            rest.extend(item.values() if isinstance(item, dict) else item)
    return longest
