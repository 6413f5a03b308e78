"""An expression as a tree: what `syntax` makes, `types` checks and `run` turns into functions.

`at` is the offset that a message about the node points to: of its operator, dot or bracket. Operators are calls
(`_+_`); `&&` and `||` hold all their terms, so that a long chain is not a deep tree.
"""

from typing import Any

import msgspec


class Node(msgspec.Struct, frozen=True):
    at: int


class Literal(Node, frozen=True):
    value: Any
    type: str


class Name(Node, frozen=True):
    name: str
    absolute: bool = False  # `.name`: never the variable of a macro


class Select(Node, frozen=True):
    operand: Node
    field: str


class Has(Node, frozen=True):
    operand: Node
    field: str


class Call(Node, frozen=True):
    function: str
    args: tuple[Node, ...]
    member: bool = False  # the first argument stood before the dot


class ListOf(Node, frozen=True):
    items: tuple[Node, ...]


class MapOf(Node, frozen=True):
    entries: tuple[tuple[Node, Node], ...]


class Logic(Node, frozen=True):
    """`&&` or `||` over two terms or more; `ats` are the offsets of the operators between them."""

    operator: str
    terms: tuple[Node, ...]
    ats: tuple[int, ...]


class Loop(Node, frozen=True):
    """A macro: `kind` over a collection, `test` for those that ask, `give` for `map`."""

    kind: str
    over: Node
    variable: str
    test: Node | None
    give: Node | None
