"""Where each value of a definition stands in its text: lines and columns that count from 1.

Built by `document`; asked by everything that reports a problem. Columns count characters, as editors do.
"""

import re
from collections.abc import Iterator
from typing import Any

Path = tuple[str | int, ...]
Place = tuple[int, int]

# What YAML takes for the end of a line; anything less and our lines would not be the parser's.
_LINE_BREAK = re.compile("\r\n|[\n\r\x85\u2028\u2029]")


class Node:
    """One value: its plain data, where it starts and how it was written (`style` is YAML's indicator)."""

    __slots__ = ("children", "column", "data", "height", "keys", "line", "one_line", "size", "style")

    def __init__(self, data: Any, line: int, column: int, *, style: str = "", one_line: bool = True) -> None:
        self.data = data
        self.line = line
        self.column = column
        self.style = style
        self.one_line = one_line
        self.children: dict[str | int, Node] = {}
        self.keys: dict[str, Place] = {}
        # With every alias written out: how many values, and how deep.
        self.size = 1
        self.height = 1

    def adopt(self, part: str | int, child: "Node") -> None:
        self.children[part] = child
        self.size += child.size
        self.height = max(self.height, child.height + 1)


class Document:
    """Plain data, and the place of every value and key in it."""

    def __init__(self, text: str, root: Node) -> None:
        self._lines = _LINE_BREAK.split(text.removeprefix("\ufeff"))
        self._root = root

    @property
    def data(self) -> Any:
        return self._root.data

    def position(self, path: Path) -> Place:
        """Where the value starts; for a path that does not exist, its nearest existing ancestor."""
        node, _ = self._walk(path)
        return node.line, node.column

    def key_position(self, path: Path) -> Place:
        """Where the key of a value starts; an element of a list has none, so there the value itself.

        For a path that does not exist, the key of its nearest existing ancestor.
        """
        _, depth = self._walk(path)
        if depth:
            parent, _ = self._walk(path[: depth - 1])
            place = parent.keys.get(str(path[depth - 1]))
            if place is not None:
                return place
        return self.position(path[:depth])

    def within(self, path: Path, line: int, column: int) -> Place:
        """Where a character of a text value stands: `line` and `column` count inside the value.

        Exact for text on one line, for literal blocks and for folded ones whose lines are all indented alike; other
        text over several lines gives its start, because it no longer says where it was broken.
        """
        node, depth = self._walk(path)
        if depth < len(path) or not isinstance(node.data, str):
            return node.line, node.column
        if node.style == "|":
            return self._within_literal(node, line, column)
        if node.style == ">" and line == 1:
            return self._within_folded(node, column - 1)
        if not node.one_line or line != 1:
            return node.line, node.column
        source = self._lines[node.line - 1]
        return node.line, node.column + _source_offset(source[node.column - 1 :], node.style, column - 1)

    def _within_literal(self, node: Node, line: int, column: int) -> Place:
        row = node.line + line
        wanted = node.data.split("\n")
        if row > len(self._lines) or line > len(wanted):
            return node.line, node.column
        indent = self._lines[row - 1].find(wanted[line - 1])
        return (row, indent + column) if indent >= 0 else (node.line, node.column)

    def _within_folded(self, node: Node, offset: int) -> Place:
        begun, row = 0, node.line
        while row < len(self._lines):
            text = self._lines[row].strip()
            if not text or node.data[begun : begun + len(text)] != text:
                break
            if offset <= begun + len(text):
                return row + 1, self._lines[row].find(text) + offset - begun + 1
            begun, row = begun + len(text) + 1, row + 1  # a line break was folded into one space
        return node.line, node.column

    def _walk(self, path: Path) -> tuple[Node, int]:
        """The deepest node on the way along `path`, and how many parts of it were followed."""
        node = self._root
        for depth, part in enumerate(path):
            child = node.children.get(part)
            if child is None:
                return node, depth
            node = child
        return node, len(path)


def path_text(path: Path) -> str:
    """`spec.fsm.states.classify.transitions[0].to`"""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).removeprefix(".")


def _source_offset(source: str, style: str, count: int) -> int:
    """How many characters of source spell the first `count` characters of a value on one line."""
    if style not in ("'", '"'):
        return count
    widths = _escaped_widths(source[1:], style)
    return 1 + sum(next(widths, 1) for _ in range(count))


def _escaped_widths(source: str, style: str) -> Iterator[int]:
    """The width in the source of each character of a quoted value."""
    at = 0
    while at < len(source):
        width = 1
        if style == "'" and source.startswith("''", at):
            width = 2
        elif style == '"' and source[at] == "\\":
            width = {"x": 4, "u": 6, "U": 10}.get(source[at + 1 : at + 2], 2)
        yield width
        at += width
