"""What an expression may cost, decided before the engine sees it: half from its text, half from its data.

The engines stop at a nesting of 32 and at 10,000 iterations an evaluation. That leaves ways to hang a control plane:
macros inside macros, long bodies walked ten thousand times, `x in list` inside a walk over the list, chains that
double a value, and `map` and `filter` over long lists (their cost in Google's runtime is the square of the length).
`refuse_costly` judges the text at registration; `Cost` weighs the data of an evaluation and is skipped where the
text alone says that nothing can grow. `limits` has the bounds.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from agentflow import limits
from planners.expressions.lexer import LIST_BUILDERS, MACROS, NamePath, Token, closing

# Words that read all of a value, and how much of it: a pattern reads a text slower than a comparison does.
_SCANS = {
    **dict.fromkeys(("==", "!=", "<", "<=", ">", ">=", "in", "+", "size", "len", "contains", "startsWith"), 1),
    **dict.fromkeys(("endsWith", "string", "bytes", "int", "double"), 1),
    "matches": 16,
}  # fmt: skip
_CHARS_PER_UNIT = 64  # text that costs as much to read as one value
_SCANS_FREE = 32  # that often even the largest payload is read in a few milliseconds
_Path = tuple[str, ...]


class TooCostly(Exception):
    def __init__(self, message: str, hint: str, offset: int) -> None:
        super().__init__(message)
        self.message, self.hint, self.offset = message, hint, offset


class Cost(msgspec.Struct, frozen=True):
    """What the text of an expression says about its cost; index 0, 1, 2 is how many macros a word stands in."""

    words: tuple[int, int, int]
    scans: tuple[int, int, int]
    additions: int  # outside of macros
    additions_inside: int
    macros: int
    builders: int  # how deep `map` and `filter` are nested
    literal: int  # items of the longest literal list or object
    outer: tuple[_Path, ...]  # what the bodies of macros read from outside

    @property
    def is_small(self) -> bool:
        """Whether no data can make this expensive, so that the data need not be looked at."""
        return self.macros == 0 and self.scans[0] <= _SCANS_FREE

    def reason_against(self, data: Mapping[str, Any]) -> str | None:
        """Why the expression must not be evaluated over this data; None where it may."""
        longest, units = measure(data)
        longest = max(longest, self.literal)
        growth = (1 + self.additions_inside) ** max(0, self.macros - 1)
        if self.builders:
            items_max = limits.EXPRESSION_ITEMS_MAX if self.builders == 1 else limits.EXPRESSION_ITEMS_NESTED_MAX
            if longest * (1 + self.additions) * (growth if self.macros > 1 else 1) > items_max:
                return f"map and filter take lists of at most {items_max} items here"
        once, twice = longest, min(limits.EXPRESSION_ITERATIONS_MAX, longest * longest)
        if self.words[1] * once + self.words[2] * twice > limits.EXPRESSION_OPERATIONS_MAX:
            return f"its loops over {longest} items take too many operations"
        outer = sum(measure(_found(data, path))[1] for path in self.outer)
        read = (
            self.scans[0] * units
            + self.scans[1] * (units + once * outer)
            + self.scans[2] * (once * units + twice * outer)
        )
        if read * growth > limits.EXPRESSION_VOLUME_MAX:
            return "it would read too much data"
        return None


def cost_of(words: Sequence[Token], paths: Iterable[NamePath]) -> Cost:
    depths, variables = _depths(words)
    counts, scans, additions = [0, 0, 0], [0, 0, 0], [0, 0, 0]
    for word, depth in zip(words, depths, strict=True):
        if word.kind in ("name", "symbol"):
            counts[depth] += 1
            scans[depth] += _SCANS.get(word.text, 0)
            additions[depth] += word.text == "+"
    # `a + b + c` copies `a` twice, so the second addition costs more than the first.
    scans[0] += additions[0] * max(0, additions[0] - 1) // 2
    inside = {word.start for word, depth in zip(words, depths, strict=True) if depth}
    return Cost(
        words=(counts[0], counts[1], counts[2]),
        scans=(scans[0], scans[1], scans[2]),
        additions=additions[0],
        additions_inside=additions[1] + additions[2],
        macros=sum(is_macro(words, at) for at in range(len(words))),
        builders=_builder_depth(words),
        literal=_longest_literal(words),
        outer=tuple(path.parts for path in paths if path.starts[0] in inside and path.parts[0] not in variables),
    )


def _depths(words: Sequence[Token]) -> tuple[list[int], set[str]]:
    """In how many macros each word stands, and the names that macros give to items."""
    depths, variables = [0] * len(words), set()
    for at in range(len(words)):
        if is_macro(words, at):
            end = closing(words, at)
            for inner in range(at + 1, len(words) if end is None else end):
                depths[inner] = min(2, depths[inner] + 1)
            if at + 1 < len(words):
                variables.add(words[at + 1].text)
    return depths, variables


def _builder_depth(words: Sequence[Token]) -> int:
    """2 where a `map` or `filter` stands inside another macro, 1 where they stand alone."""
    depths, _ = _depths(words)
    builders = [at for at in range(len(words)) if is_macro(words, at) and words[at - 1].text in LIST_BUILDERS]
    return max((1 + min(1, depths[at]) for at in builders), default=0)


def _longest_literal(words: Sequence[Token]) -> int:
    longest, open_counts = 0, []
    for word in words:
        if word.kind != "symbol":
            continue
        if word.text in "([{":
            open_counts.append(1)
        elif word.text in ")]}" and open_counts:
            longest = max(longest, open_counts.pop())
        elif word.text == "," and open_counts:
            open_counts[-1] += 1
    return longest


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


def measure(value: Any) -> tuple[int, int]:
    """The length of the longest list or object inside a JSON value, and what all of it costs to read."""
    longest = units = 0
    rest = [value]
    while rest:
        item = rest.pop()
        units += 1
        if isinstance(item, str):
            units += len(item) // _CHARS_PER_UNIT
        elif isinstance(item, dict):
            longest = max(longest, len(item))
            rest += item.values()
        elif isinstance(item, list):
            longest = max(longest, len(item))
            rest += item
        if units > limits.EXPRESSION_VOLUME_MAX:
            break
    return longest, units


def _found(data: Any, path: _Path) -> Any:
    for part in path:
        if not isinstance(data, dict) or part not in data:
            return data if isinstance(data, list) else None
        data = data[part]
    return data
