"""What an expression may cost, decided before the engine sees it: half from its text, half from its data.

The engines stop at a nesting of 32 and at 10,000 iterations an evaluation. That leaves ways to hang a control plane:
macros inside macros, long bodies walked ten thousand times, `x in list` inside a walk over the list, chains that
double a value, and `map` and `filter` over long lists (their cost in Google's runtime is the square of the length).
`refuse_costly` judges the text at registration; `Cost` weighs the data of an evaluation and is skipped where the
text alone says that nothing can grow. `limits` has the bounds.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from math import prod
from typing import Any, NamedTuple

import msgspec

from agentflow import limits
from planners.expressions.lexer import LIST_BUILDERS, MACROS, NamePath, Token, closing, tokens

_CHARS_PER_UNIT = 64  # text that costs as much to read as one value
_PATTERN_WEIGHT = 16  # a pattern reads a text slower than a comparison does
_USES_FREE = 1  # one value can be read once, however large it is: it had to be read to be handed over
_PLAIN = frozenset({int, float, bool, type(None)})
_Path = tuple[str, ...]


class TooCostly(Exception):
    def __init__(self, message: str, hint: str, offset: int) -> None:
        super().__init__(message)
        self.message, self.hint, self.offset = message, hint, offset


class Use(msgspec.Struct, frozen=True):
    """One place where a value is read: inside how many macros, and how slowly. No path: an item of a macro."""

    path: _Path | None
    depth: int
    weight: int


class Cost(msgspec.Struct, frozen=True):
    """What the text of an expression says about its cost. `words` counts those inside no, one and two macros."""

    words: tuple[int, int, int]
    uses: tuple[Use, ...]
    additions: int
    additions_outside: int  # of macros
    macros: int
    builders: int  # how deep `map` and `filter` are nested
    growth: int  # how often a chain of `map` can repeat what it is given
    literal: int  # items of the longest literal list or object
    composes: bool  # whether the result can hold several values that were read

    @property
    def is_small(self) -> bool:
        """Whether no data can make this expensive, so that the data need not be looked at."""
        light = all(use.weight == 1 for use in self.uses)
        return self.macros == 0 and len(self.uses) <= _USES_FREE and light and self.additions <= 1 and not self.composes

    def reason_against(self, data: Mapping[str, Any], measured: "Measured") -> str | None:
        """Why the expression must not be evaluated over this data; None where it may."""
        longest, units = max(measured.longest, self.literal), measured.units
        once, twice = longest, min(limits.EXPRESSION_ITERATIONS_MAX, longest * longest)
        if self.builders:
            items_max = limits.EXPRESSION_ITEMS_MAX if self.builders == 1 else limits.EXPRESSION_ITEMS_NESTED_MAX
            joined = self.additions if self.macros > 1 else self.additions_outside
            if longest * (1 + joined) > items_max:
                return f"map and filter take lists of at most {items_max} items here"
        if self.words[1] * once + self.words[2] * twice > limits.EXPRESSION_OPERATIONS_MAX:
            return f"its loops over {longest} items take too many operations"
        # Each name is first taken to be all of the data; only where that is too much are they told apart.
        reason = self._too_much(lambda _path: units, units, once, twice)
        if reason is not None and len({use.path for use in self.uses}) > 1:
            sizes = {use.path: measure(_found(data, use.path)).units for use in self.uses if use.path is not None}
            return self._too_much(sizes.__getitem__, units, once, twice)
        return reason

    def _too_much(self, size: Callable[[_Path], int], units: int, once: int, twice: int) -> str | None:
        read = made = 0
        for use in self.uses:
            if use.path is None:
                read += use.weight * units * (1 if use.depth == 1 else once)
                made += units
            else:
                seen = size(use.path) * (1, once, twice)[use.depth]
                read += use.weight * seen
                made += seen
        if read * (1 + self.additions) * self.growth > limits.EXPRESSION_VOLUME_MAX:
            return "it would read too much data"
        if self.composes and made * self.growth > limits.EXPRESSION_RESULT_MAX:
            return "its result could hold too many values; put lists and objects together outside of `${…}`"
        return None


def cost_of(words: Sequence[Token], paths: Iterable[NamePath], kind: str) -> Cost:
    """`kind` is the type of the result: text and numbers cannot hold other values."""
    depths, variables = _depths(words)
    counts = [0, 0, 0]
    for word, depth in zip(words, depths, strict=True):
        counts[depth] += word.kind in ("name", "symbol")
    places = {word.start: at for at, word in enumerate(words)}
    uses = []
    for path in paths:
        at = places[path.starts[0]]
        after = _texts(words, at + 2 * len(path.parts) - 1)
        if is_macro(words, at - 1) or (after[:1] == ["."] and after[1] in MACROS):
            continue  # the name that a macro gives to an item, or the list it walks: nothing is read of it here
        weight = _PATTERN_WEIGHT if after[:2] == [".", "matches"] or _is_global_pattern(words) else 1
        is_item = depths[at] > 0 and path.parts[0] in variables
        uses.append(Use(None if is_item else path.parts, depths[at], weight))
    macros = [at for at in range(len(words)) if is_macro(words, at)]
    return Cost(
        words=(counts[0], counts[1], counts[2]),
        uses=tuple(uses),
        additions=sum(word.text == "+" for word in words),
        additions_outside=sum(word.text == "+" and not depth for word, depth in zip(words, depths, strict=True)),
        macros=len(macros),
        builders=_builder_depth(words, depths),
        growth=prod(_repeats(words, at) for at in macros if words[at - 1].text == "map"),
        literal=_longest_literal(words),
        composes=kind.partition("<")[0] in ("dyn", "list", "map") and _makes_lists(words),
    )


def _makes_lists(words: Sequence[Token]) -> bool:
    """Whether there is a literal list or object, or a macro that builds one; a bracket after a value is an index."""
    for at, word in enumerate(words):
        if is_macro(words, at) and words[at - 1].text in LIST_BUILDERS:
            return True
        if word.kind == "symbol" and word.text in "[{":
            before = words[at - 1] if at else None
            if before is None or (before.kind == "symbol" and before.text not in ")]}") or before.text == "in":
                return True
    return False


def _repeats(words: Sequence[Token], bracket: int) -> int:
    """How often the body of a macro names its item as a whole: `[x, x]` makes two of one."""
    end = closing(words, bracket)
    if end is None or bracket + 1 >= len(words):
        return 1
    name = words[bracket + 1].text
    inside = range(bracket + 2, end)
    return max(1, sum(words[at].text == name and _texts(words, at + 1)[:1] not in (["."], ["["]) for at in inside))


def _is_global_pattern(words: Sequence[Token]) -> bool:
    return any(word.text == "matches" and _texts(words, at - 1)[:1] != ["."] for at, word in enumerate(words))


def _texts(words: Sequence[Token], at: int) -> list[str]:
    return [word.text for word in words[at : at + 2]] if at >= 0 else []


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


def _builder_depth(words: Sequence[Token], depths: Sequence[int]) -> int:
    """2 where a `map` or `filter` stands inside another macro, 1 where they stand alone."""
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


def words_of(text: str) -> tuple[Token, ...]:
    """The words of a text that is not too long. Raises `TooCostly`."""
    if len(text) > limits.EXPRESSION_CHARS_MAX:
        message = f"The expression has {len(text)} characters; {limits.EXPRESSION_CHARS_MAX} are allowed."
        raise TooCostly(message, "Let an agent work this out and give back the answer.", 0)
    words = tuple(islice(tokens(text), limits.EXPRESSION_WORDS_MAX + 1))
    if len(words) > limits.EXPRESSION_WORDS_MAX:
        message = f"The expression has more than {limits.EXPRESSION_WORDS_MAX} names, values and operators."
        raise TooCostly(message, "Let an agent work this out and give back the answer.", words[-1].start)
    return words


def refuse_costly(words: Sequence[Token]) -> None:
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


class Measured(NamedTuple):
    longest: int  # items of the longest list or object
    units: int  # what all of it costs to read
    is_json: bool  # whether nothing else was met, such as a claim on a large value


def measure(value: Any) -> Measured:
    longest, units, is_json, rest = 0, 0, True, [[value]]
    while rest and units <= limits.EXPRESSION_VOLUME_MAX:
        items: Any = rest.pop()
        units += len(items)
        for item in items:
            kind = type(item)
            if kind is str:
                units += len(item) // _CHARS_PER_UNIT
            elif kind is dict:
                longest = max(longest, len(item))
                rest.append(item.values())
            elif kind is list:
                longest = max(longest, len(item))
                rest.append(item)
            elif kind not in _PLAIN:
                is_json = False
    return Measured(longest, units, is_json)


def _found(data: Any, path: _Path) -> Any:
    for part in path:
        if not isinstance(data, dict) or part not in data:
            return data if isinstance(data, list) else None
        data = data[part]
    return data
