"""Types inside of macros: `input.items.all(i, i.price > 'x')` is refused where prices are declared to be numbers.

To an engine the fields of an item have no types, since it knows no records. So what a macro does with each item is
checked once more by itself, as an expression in which the fields of the item are declared like any others.
"""

from collections.abc import Iterator, Mapping, Sequence

from planners.expressions.engine import DYN, Refusal
from planners.expressions.engines import check_text
from planners.expressions.lexer import NamePath, Token
from planners.expressions.scope import Scope
from planners.expressions.walks import Walks

_LISTERS = "map"  # its last argument may be of any type; every other argument of a macro is a test


def refusals_in_bodies(
    text: str,
    words: Sequence[Token],
    paths: Sequence[NamePath],
    scope: Scope,
    declared: Mapping[str, str],
) -> list[Refusal]:
    """`declared` are the names that are known outside of the macros."""
    walks = Walks(words, paths)
    found: list[Refusal] = []
    for bracket, end in walks.macros:
        items = _declared(walks, paths, scope, bracket)
        if not items or any(name.partition(".")[0] in declared for name in items):
            continue  # nothing is known, or an item has the name of something else
        arguments = list(_arguments(words, bracket, end))
        for at, (first, last) in enumerate(arguments):
            # Blanks before it, so that every place is what it was.
            body = " " * words[first].start + text[words[first].start : words[last].end]
            result = check_text(body, {**declared, **items})
            if isinstance(result, list):
                found += result
            elif result not in ("bool", DYN) and not _gives(words, bracket, at, len(arguments)):
                shown = result.replace("<", "(").replace(">", ")")
                found.append(Refusal("overload", "_&&_", words[bracket].start, f"(bool, {shown})"))
    return found


def _declared(walks: Walks, paths: Sequence[NamePath], scope: Scope, bracket: int) -> dict[str, str]:
    """What is known of the items that are named inside of a macro: its own, and those of the macros around it."""
    items: dict[str, str] = {}
    for path in walks.within(paths, bracket):
        by = walks.walked_by(path)
        if by is None or by > bracket:
            continue  # no item, or one of a macro inside of this one
        shape = walks.shape_of_root(path, scope)
        for depth in range(1, len(path.parts) + 1):
            if shape is None:
                break
            items[".".join(path.parts[:depth])] = shape.type
            shape = shape.fields.get(path.parts[depth]) if depth < len(path.parts) else None
    # A macro inside that gives an item the same name hides this one.
    hidden = walks.names_inside(bracket)
    return {} if any(name.partition(".")[0] in hidden for name in items) else items


def _arguments(words: Sequence[Token], bracket: int, end: int) -> Iterator[tuple[int, int]]:
    """The first and the last word of each argument of a macro but the name."""
    depth, begun = 0, bracket + 3  # behind the bracket, the name and a comma
    for at in range(bracket + 1, end + 1):
        word = words[at]
        if word.kind != "symbol":
            continue
        if at == end or (word.text == "," and depth == 0 and at > bracket + 2):
            if begun < at:
                yield begun, at - 1
            begun = at + 1
        depth += (word.text in "([{") - (word.text in ")]}")


def _gives(words: Sequence[Token], bracket: int, argument: int, arguments: int) -> bool:
    return words[bracket - 1].text == _LISTERS and argument == arguments - 1
