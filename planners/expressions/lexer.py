"""The words of a CEL expression, with their places: enough to see names, macros and braces without the engine.

Never fails: what is no CEL at all becomes a token of kind `other`, and the engine's parser says so later.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

Kind = Literal["name", "quoted_name", "string", "number", "symbol", "other"]

_TOKEN = re.compile(
    r"""
      (?P<blank>\s+|//[^\n]*)
    | (?P<string>[bB]?(?:[rR](?:\"{3}.*?\"{3}|'{3}.*?'{3}|"[^"\n]*"|'[^'\n]*')
                      |\"{3}(?:\\.|[^\\])*?\"{3}|'{3}(?:\\.|[^\\])*?'{3}
                      |"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'))
    | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
    | (?P<quoted_name>`[^`\n]*`)
    | (?P<number>0x[0-9a-fA-F]+[uU]?|(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?[uU]?)
    | (?P<symbol>&&|\|\||[=!<>]=|[-+*/%!<>?:.,()\[\]{}])
    | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)
MACROS = frozenset({"all", "exists", "exists_one", "map", "filter"})
LIST_BUILDERS = frozenset({"map", "filter"})
_WORDS = frozenset({"true", "false", "null", "in"})
_OPERAND_ENDS = frozenset({")", "]", "}"})


class Token(NamedTuple):
    kind: str
    text: str
    start: int  # offset into the text

    @property
    def end(self) -> int:
        return self.start + len(self.text)


class NamePath(NamedTuple):
    """`input.user.role` as it stands in an expression, without a method that is called on it."""

    parts: tuple[str, ...]
    starts: tuple[int, ...]


def tokens(text: str, start: int = 0) -> Iterator[Token]:
    for found in _TOKEN.finditer(text, start):
        if found.lastgroup != "blank":
            yield Token(str(found.lastgroup), found[0], found.start())


def name_paths(words: Sequence[Token]) -> list[NamePath]:
    """Every place that reads a name: its root and the plain fields selected from it."""
    paths = []
    for at, word in enumerate(words):
        if word.kind != "name" or word.text in _WORDS or is_field(words, at):
            continue
        if _is(words, at + 1, "("):
            continue  # a function
        parts, starts, after = [word.text], [word.start], at + 1
        while _is(words, after, ".") and after + 1 < len(words) and words[after + 1].kind == "name":
            if _is(words, after + 2, "("):
                break  # a method: what it is called on ends here
            parts.append(words[after + 1].text)
            starts.append(words[after + 1].start)
            after += 2
        paths.append(NamePath(tuple(parts), tuple(starts)))
    return paths


def receiver_start(words: Sequence[Token], dot: int) -> int:
    """Where the operand of the dot at `dot` begins: `a.b[0]` in `a.b[0].map(…)`."""
    at = dot - 1
    while True:
        if words[at].text in _OPERAND_ENDS and words[at].kind == "symbol":
            at = _opening(words, at)
            # Before a bracket may stand what is indexed or called; before anything else an operator.
            before = words[at - 1] if at > 0 and words[at].text != "{" else None
            is_operand = before is not None and (before.kind == "name" or before.text in _OPERAND_ENDS)
            if before is not None and is_operand and before.text not in _WORDS:
                at -= 1
                continue
        if _is(words, at - 1, ".") and words[at].kind == "name":
            if not is_field(words, at):
                return words[at - 1].start
            at -= 2
            continue
        return words[at].start


def closing(words: Sequence[Token], at: int) -> int | None:
    """The index of the bracket that closes the one at `at`; None where it is not closed."""
    depth = 0
    for index in range(at, len(words)):
        if words[index].kind == "symbol":
            depth += (words[index].text in "([{") - (words[index].text in ")]}")
            if depth == 0:
                return index
    return None


def _opening(words: Sequence[Token], at: int) -> int:
    depth = 0
    while at >= 0:
        if words[at].kind == "symbol":
            depth += (words[at].text in ")]}") - (words[at].text in "([{")
            if depth == 0:
                return at
        at -= 1
    return 0


def word_at(text: str, offset: int) -> str:
    """What stands at an offset, as a message names it: a word, or the start of a string that does not end."""
    word = next(tokens(text, offset), None)
    if word is None:
        return ""
    return text[offset:].split(maxsplit=1)[0] if word.text in ("'", '"') else word.text


def line_and_column(text: str, offset: int) -> tuple[int, int]:
    return text.count("\n", 0, offset) + 1, offset - (text.rfind("\n", 0, offset) + 1) + 1


def offset_of(text: str, line: int, column: int) -> int:
    """The offset of a line and column; what is nowhere (0, 0) is at the start."""
    before = 0
    for _ in range(line - 1):
        before = text.find("\n", before) + 1
    return max(0, before + column - 1)


def is_field(words: Sequence[Token], at: int) -> bool:
    """Whether the name at `at` is selected from something; a dot with nothing before it only says `top level`."""
    if not _is(words, at - 1, ".") or at < 2:
        return False
    before = words[at - 2]
    return before.text in _OPERAND_ENDS if before.kind == "symbol" else before.text != "in"


def _is(words: Sequence[Token], at: int, text: str) -> bool:
    return 0 <= at < len(words) and words[at].text == text and words[at].kind == "symbol"
