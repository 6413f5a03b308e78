"""Conditions that need no engine: names compared with literals, joined by `&&` and `||`.

Most conditions are of this kind, and handing a value to an engine costs more than comparing it. A shortcut answers
only where both engines are sure to give that very answer: every value that the text names is there, plain and small.
For anything else (a missing field, a type that does not fit, a large or strange value) it says None, and the engine
has the word, so that failures have one origin. A property test holds it to both engines.
"""

import operator
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from planners.expressions.lexer import Token
from planners.expressions.literals import number, text_or_bytes
from planners.expressions.scope import RESERVED, Facts

Shortcut = Callable[[Facts], bool | None]
_Read = Callable[[Facts], Any]
_Test = Callable[[Any], bool | None]
_Tests = dict[type, _Test]

_INT_MIN, _INT_MAX = -(2**63), 2**63 - 1
_NoneType = type(None)
# Within these no expression can cost too much to be evaluated, so that nothing has to be measured.
TERMS_MAX = 8
TEXT_CHARS_MAX = 256
_MISSING = object()
_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_CONSTANTS = {"true": True, "false": False, "null": None}


class _NoShortcut(Exception):
    """The text is more than a shortcut can answer."""


def shortcut_of(words: Sequence[Token], roots: Collection[str], local: Collection[str]) -> Shortcut | None:
    """`roots` are the top-level names that stand for values, `local` those of them that belong to the place. None where
    the text needs an engine."""
    if any(word.text in "(){}?:+*/%" and word.kind == "symbol" for word in words):
        return None
    try:
        ways = [
            [_term(term, roots, local) for term in _split(way, "&&")] for way in _split(words, "||")
        ]  # fmt: skip
    except _NoShortcut:
        return None
    if sum(map(len, ways)) > TERMS_MAX:
        return None
    if len(ways) == 1:
        return _alone(*ways[0][0]) if len(ways[0]) == 1 else _all(ways[0])
    return _any(ways)


def _split(words: Sequence[Token], mark: str) -> Iterator[Sequence[Token]]:
    begun = 0
    for at, word in enumerate(words):
        if word.kind == "symbol" and word.text == mark:
            yield words[begun:at]
            begun = at + 1
    yield words[begun:]


def _alone(read: _Read, tests: _Tests) -> Shortcut:
    def answer(facts: Facts) -> bool | None:
        value = read(facts)
        test = tests.get(type(value))
        return None if test is None else test(value)

    return answer


def _all(terms: Sequence[tuple[_Read, _Tests]]) -> Shortcut:
    def answer(facts: Facts) -> bool | None:
        holds = True
        for read, tests in terms:  # each is looked at: what an engine could not even hold is its to refuse
            value = read(facts)
            test = tests.get(type(value))
            found = None if test is None else test(value)
            if found is None:
                return None
            holds = holds and found
        return holds

    return answer


def _any(ways: Sequence[Sequence[tuple[_Read, _Tests]]]) -> Shortcut:
    answers = [_all(terms) for terms in ways]

    def answer(facts: Facts) -> bool | None:
        holds = False
        for way in answers:
            found = way(facts)
            if found is None:
                return None
            holds = holds or found
        return holds

    return answer


def _term(words: Sequence[Token], roots: Collection[str], local: Collection[str]) -> tuple[_Read, _Tests]:
    """`name`, `!name`, `name == literal`, `name in [literals]`."""
    denied = bool(words) and words[0].text == "!"
    path, rest = _path(words[1:] if denied else words, roots)
    read = _reader(path, local)
    if not rest:
        return read, {bool: operator.not_ if denied else bool}
    if denied or len(rest) < 2:
        raise _NoShortcut
    sign, operand = rest[0], rest[1:]
    if sign.text == "in" and sign.kind == "name":
        return read, _within(_literals(operand))
    if sign.kind != "symbol" or sign.text not in _COMPARISONS:
        raise _NoShortcut
    return read, _compared(sign.text, _literal(operand))


def _path(words: Sequence[Token], roots: Collection[str]) -> tuple[tuple[str, ...], Sequence[Token]]:
    """The name at the beginning, and what follows it."""
    parts: list[str] = []
    at = 0
    while at < len(words) and words[at].kind == "name":
        parts.append(words[at].text)
        at += 1
        if at >= len(words) or words[at].text != ".":
            break
        at += 1
    if not parts or words[at - 1].text == "." or parts[0] not in roots:
        raise _NoShortcut
    return tuple(parts), words[at:]


def _literal(words: Sequence[Token]) -> Any:
    signed = len(words) == 2 and words[0].text == "-"
    word = words[-1]
    if word.kind == "number" and (signed or len(words) == 1):
        value, kind = number(f"-{word.text}" if signed else word.text)
        if kind != "uint":
            return value
    elif len(words) == 1 and word.kind == "string":
        text = text_or_bytes(word.text)
        if isinstance(text, str):
            return text
    elif len(words) == 1 and word.kind == "name" and word.text in _CONSTANTS:
        return _CONSTANTS[word.text]
    raise _NoShortcut


def _literals(words: Sequence[Token]) -> list[Any]:
    if len(words) < 3 or words[0].text != "[" or words[-1].text != "]":
        raise _NoShortcut
    return [_literal(item) for item in _split(words[1:-1], ",")]


# What is true of a value of each type. A value that an engine would refuse to hold gives None.


def _checked(kind: type, test: Callable[[Any], bool]) -> _Test:
    if kind is int:
        return lambda value: test(value) if _INT_MIN <= value <= _INT_MAX else None
    if kind is str:
        return lambda value: test(value) if len(value) <= TEXT_CHARS_MAX and value.isascii() else None
    return test


def _compared(sign: str, literal: Any) -> _Tests:
    compare = _COMPARISONS[sign]
    kind = type(literal)
    alike = (int, float) if kind in (int, float) else (kind,)
    tests: _Tests = {}
    for other in (int, float, str, bool, _NoneType):
        if other not in alike:
            if sign in ("==", "!="):
                tests[other] = _checked(other, _always(sign == "!="))
        elif kind is _NoneType:
            if sign in ("==", "!="):
                tests[other] = _always(sign == "==")
        elif kind is other:
            tests[other] = _checked(other, _against(compare, literal))
        else:  # a whole and a broken number are compared as doubles
            tests[other] = _checked(other, _as_doubles(compare, float(literal)))
    return tests


def _within(literals: Sequence[Any]) -> _Tests:
    tests: _Tests = {}
    for kind in (int, float, str, bool, _NoneType):
        tests[kind] = _any_of([_compared("==", literal)[kind] for literal in literals])
    return tests


def _any_of(tests: Sequence[_Test]) -> _Test:
    def test(value: Any) -> bool | None:
        found: bool | None = False
        for one in tests:
            holds = one(value)
            if holds is None:
                return None
            found = found or holds
        return found

    return test


def _always(answer: bool) -> Callable[[Any], bool]:
    return lambda _value: answer


def _against(compare: Callable[[Any, Any], bool], literal: Any) -> Callable[[Any], bool]:
    return lambda value: compare(value, literal)


def _as_doubles(compare: Callable[[Any, Any], bool], literal: float) -> Callable[[Any], bool]:
    return lambda value: compare(float(value), literal)


# Where a name is read. As in `reading`, but only through what is plainly there.


def _reader(path: tuple[str, ...], local: Collection[str]) -> _Read:
    root, parts = path[0], path[1:]
    match root:
        case "input":
            return lambda facts: _walked(facts.input, parts)
        case "output":
            return lambda facts: _walked(facts.output, parts)
        case "vars":
            return lambda facts: _walked(facts.vars, parts)
        case "env":
            return lambda facts: _walked(facts.env, parts)
        case "steps" if len(parts) > 2 and parts[1] == "output":
            step, inner = parts[0], parts[2:]
            return lambda facts: _walked(facts.outputs.get(step), inner)
    if root in RESERVED:
        raise _NoShortcut
    if root in local:
        return lambda facts: _walked(facts.locals, path)
    return lambda facts: _walked(facts.output, path)


def _walked(value: Any, parts: tuple[str, ...]) -> Any:
    for part in parts:
        if type(value) is not dict:
            return _MISSING
        value = value.get(part, _MISSING)
    return value
