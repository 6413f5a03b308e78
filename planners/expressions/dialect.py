"""What CEL has and we leave out, so that an expression means the same on every engine and on every machine.

Found in the words of a text before an engine sees it, and said in our own sentences. Left out are messages,
optional fields, names in backquotes, trailing commas, time zones (their rules change with the machine's data) and
patterns that are not written out (a pattern from data cannot be checked).
"""

from collections.abc import Iterator, Sequence

from agentflow import limits
from planners.expressions.faults import Fault
from planners.expressions.lexer import Token, closing, is_field
from planners.expressions.literals import BadLiteral, number, text_or_bytes
from planners.expressions.patterns import BadPattern, refuse_bad

_RESERVED_WORDS = frozenset(
    {"as", "break", "const", "continue", "else", "for", "function", "if", "import", "let", "loop", "package",
     "namespace", "return", "var", "void", "while"}
)  # fmt: skip
_CONSTANTS = frozenset({"in", "true", "false", "null"})


def left_out(words: Sequence[Token]) -> list[Fault]:
    faults = {fault.message: fault for at in reversed(range(len(words))) for fault in _faults_at(words, at)}
    return list(reversed(faults.values()))  # the first of each kind: the others are cured with it


def _faults_at(words: Sequence[Token], at: int) -> Iterator[Fault]:
    word = words[at]
    match word.kind:
        case "quoted_name":
            yield Fault("Names in backquotes are not supported.", f"Write `['{word.text[1:-1]}']`.", word.start)
        case "string":
            yield from _bad_literal(word)
        case "number":
            yield from _bad_number(words, at)
        case "name":
            yield from _bad_name(words, at)
        case "symbol":
            yield from _bad_symbol(words, at)


def _bad_literal(word: Token) -> Iterator[Fault]:
    try:
        text_or_bytes(word.text)
    except BadLiteral as bad:
        yield Fault(bad.message, bad.hint, word.start)


def _bad_number(words: Sequence[Token], at: int) -> Iterator[Fault]:
    word = words[at]
    signed = at > 0 and words[at - 1].text == "-"
    try:
        number(f"-{word.text}" if signed else word.text)
    except BadLiteral as bad:
        yield Fault(bad.message, bad.hint, word.start)
    if _text(words, at + 1) == "." and words[at + 1].start == word.end:
        yield Fault("A number has no fields.", f"Write `double({word.text})`, or a digit after the dot.", word.start)


def _bad_name(words: Sequence[Token], at: int) -> Iterator[Fault]:
    word, after = words[at], _text(words, at + 1)
    field = is_field(words, at)
    if field and word.text in _CONSTANTS:
        yield Fault(f"`{word.text}` cannot stand after a dot.", f"Write `['{word.text}']`.", word.start)
    elif not field and word.text in _RESERVED_WORDS:
        hint = f"A field of that name is `output.{word.text}`."
        yield Fault(f"`{word.text}` is a reserved word.", hint, word.start)
    elif not field and word.text == "dyn" and after != "(":
        yield Fault("`dyn` is a function.", "Write `dyn(…)`.", word.start)
    elif (after == "{" and word.text not in _CONSTANTS) or _texts(words, at, 3) == ["google", ".", "protobuf"]:
        yield Fault("There are no messages here.", "Write an object: `{'name': value}`.", word.start)
    elif field and word.text.startswith("get") and after == "(" and _text(words, at + 2) not in (")", ""):
        hint = "Add a duration for a fixed difference: `… + duration('2h')`."
        yield Fault(f"Times are in UTC, and `{word.text}` takes no time zone.", hint, words[at + 2].start)
    elif word.text == "matches" and after == "(":
        yield from _bad_pattern(words, at + 1, member=field)


def _bad_pattern(words: Sequence[Token], bracket: int, *, member: bool) -> Iterator[Fault]:
    end = closing(words, bracket)
    if end is None:
        return
    pattern = words[end - 1]
    before = "(" if member else ","
    if pattern.kind != "string" or _text(words, end - 2) != before or pattern.text[:1] in "bB":
        hint = "Write it in quotes; to compare with a value use contains(), startsWith() or endsWith()."
        yield Fault("The pattern of `matches` must be written out.", hint, words[bracket].start)
        return
    if len(pattern.text) > limits.EXPRESSION_PATTERN_CHARS_MAX:
        hint = f"{limits.EXPRESSION_PATTERN_CHARS_MAX} characters are allowed."
        yield Fault("The pattern is too long.", hint, pattern.start)
        return
    try:
        refuse_bad(str(text_or_bytes(pattern.text)))
    except BadLiteral:
        return  # said already
    except BadPattern as bad:
        hint = "Patterns are RE2's: without look-around and back references."
        yield Fault(f"The pattern cannot be read: {bad}.", hint, pattern.start)


def _bad_symbol(words: Sequence[Token], at: int) -> Iterator[Fault]:
    word, after = words[at], _text(words, at + 1)
    if word.text == "," and after in ("]", "}", ")"):
        yield Fault(f"`{after}` is not expected here.", "Remove the comma before it.", words[at + 1].start)
    elif word.text in "[{" and after == ",":
        yield Fault("`,` is not expected here.", "Write an item before it.", words[at + 1].start)
    elif word.text in (".", "[", "{", ",") and after == "?":
        yield Fault("Optional fields are not supported.", "Ask `has(…)` first.", words[at + 1].start)


def _text(words: Sequence[Token], at: int) -> str:
    return words[at].text if 0 <= at < len(words) else ""


def _texts(words: Sequence[Token], at: int, count: int) -> list[str]:
    return [_text(words, at + step) for step in range(count)]
