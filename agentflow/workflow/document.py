"""Text to plain data that remembers where each value stood. YAML, and JSON, which is YAML too.

Scalars follow the core schema of YAML 1.2 (`on`, `yes` and `12:30` are text), values are those of JSON,
and keys are text. Built from parser events with a stack of its own, so that depth, aliases and size are
refused while reading and never after. Equal texts are one object (`intern`): a thousand states name few agents.
"""

import re
from collections.abc import Iterator
from sys import intern
from typing import Any

import yaml

from agentflow import limits
from agentflow.errors import Problem
from agentflow.workflow.source_map import Document, Node

# The C parser is about ten times faster; PyYAML is built without it on some platforms.
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_INTEGER = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_WORDS: dict[str, Any] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INTEGER_MAX = 2**53 - 1
_INTEGER_CHARS_MAX = 20
_UNREADABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
# JSON writes characters outside the basic plane as two escapes, which YAML does not know.
_JSON_PAIR = re.compile(r"(?<!\\)((?:\\\\)*)\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})")

_SYNTAX: dict[str, tuple[str, str]] = {
    "mapping values are not allowed in this context": (
        "A `:` is not expected here.",
        "Check the indentation; text that contains `: ` must be in quotes.",
    ),
    "found character that cannot start any token": (
        "This character cannot start a value.",
        "Indent with spaces, not tabs; text that starts with `@`, `%` or a backtick must be in quotes.",
    ),
    "found unexpected end of stream": ("A quote that was opened is never closed.", "Add the closing quote."),
    "could not find expected ':'": ("A key without its `:`.", "Write `key: value`; text over several lines needs `|`."),
    "did not find expected key": ("A key is expected here.", "Check the indentation and the quotes of this line."),
    "did not find expected ',' or ']'": ("A `[` is never closed.", "Add the `]`, or a `,` between the elements."),
    "did not find expected ',' or '}'": ("A `{` is never closed.", "Add the `}`, or a `,` between the entries."),
    "did not find expected '-' indicator": (
        "A list element is expected here.",
        "Start it with `- `, or indent the line differently.",
    ),
    "found unknown escape character": (
        "A backslash in double quotes starts an escape, and this one is unknown.",
        "Write `\\\\`, or use single quotes.",
    ),
    "block sequence entries are not allowed in this context": (
        "A list element is not allowed here.",
        "Start the list on a line of its own.",
    ),
}


class _Refused(Exception):
    """Reading cannot go on; what it carries is the last problem."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


def read(text: str) -> tuple[Document | None, list[Problem]]:
    """The document, and every problem met on the way; None where nothing can be made of the text."""
    builder = _Builder()
    try:
        _refuse_unreadable(text)
        source = _JSON_PAIR.sub(_joined_pair, text) if text.lstrip("\ufeff \t\r\n").startswith("{") else text
        root = builder.build(yaml.parse(source, Loader=_Loader))
    except _Refused as refused:
        return None, [*builder.problems, refused.problem]
    except yaml.YAMLError as error:
        return None, [*builder.problems, _syntax_problem(error)]
    return Document(source, root), builder.problems


class _Builder:
    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self._anchors: dict[str, Node | None] = {}  # None while the anchored value is still being read
        self._aliases = 0
        self._open: list[_Collection] = []
        self._root: Node | None = None

    def build(self, events: Iterator[Any]) -> Node:
        for event in events:
            match event:
                case yaml.ScalarEvent():
                    self._place(self._scalar(event), event)
                case yaml.AliasEvent():
                    self._place(self._alias(event), event)
                case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
                    self._start(event)
                case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                    self._end()
                case yaml.DocumentStartEvent() if self._root is not None:
                    raise _Refused(_at(event, "A second document begins here.", "Send one workflow at a time."))
        if self._root is None:
            raise _Refused(Problem("The definition is empty.", "Start with `apiVersion: agentflow/v1`.", 1, 1))
        return self._root

    def _start(self, event: Any) -> None:
        self._refuse_tag(event)
        if self._open and self._open[-1].wants_key:
            raise _Refused(_at(event, "A key must be text.", "Write `key: value` with a single word as the key."))
        if len(self._open) >= limits.DEFINITION_DEPTH_MAX:
            raise _Refused(_at(event, *_TOO_DEEP))
        node = Node({} if isinstance(event, yaml.MappingStartEvent) else [], *_place(event))
        if event.anchor:
            self._anchors[event.anchor] = None
        self._open.append(_Collection(node, event))

    def _end(self) -> None:
        done = self._open.pop()
        self._place(done.node, done.event)

    def _place(self, node: Node, event: Any) -> None:
        """Put a finished value where it belongs."""
        if getattr(event, "anchor", None) and not isinstance(event, yaml.AliasEvent):
            self._anchors[event.anchor] = node
        if not self._open:
            self._root = node
            return
        parent = self._open[-1]
        if parent.wants_key:
            self._key(parent, event)
            return
        if len(self._open) + node.height > limits.DEFINITION_DEPTH_MAX:
            raise _Refused(_at(event, *_TOO_DEEP))
        parent.add(node)
        if parent.node.size > limits.DEFINITION_VALUES_MAX:
            raise _Refused(_at(event, *_TOO_MANY_VALUES))

    def _key(self, parent: "_Collection", event: Any) -> None:
        if not isinstance(event, yaml.ScalarEvent):
            raise _Refused(_at(event, "A key must be text.", "Write the key itself here, not an alias."))
        key = intern(event.value)
        if key in parent.node.keys:
            line, column = parent.node.keys[key]
            self.problems.append(
                _at(event, f"`{key}` is written twice.", f"It stands at {line}:{column} already; keep one of them.")
            )
            parent.take_key(None)
            return
        parent.take_key(key)
        parent.node.keys[key] = _place(event)

    def _scalar(self, event: Any) -> Node:
        self._refuse_tag(event)
        style = event.style or ""
        plain = style == "" and event.implicit[0]
        wants_key = bool(self._open) and self._open[-1].wants_key
        data = self._resolved(event) if plain and not wants_key else intern(event.value)
        one_line = event.start_mark.line == event.end_mark.line
        return Node(data, *_place(event), style=style, one_line=one_line)

    def _resolved(self, event: Any) -> Any:
        text = event.value
        if text in _WORDS:
            return _WORDS[text]
        if _INTEGER.fullmatch(text):
            return self._integer(text, event)
        if _FLOAT.fullmatch(text):
            number = float(text)
            if number in (float("inf"), float("-inf")):
                self.problems.append(_at(event, f"{text} is too large for a number.", "Put it in quotes."))
                return 0
            return number
        if _NOT_FINITE.fullmatch(text):
            self.problems.append(_at(event, f"{text} is not a number in JSON.", "Use a finite number, or quotes."))
            return 0
        return intern(text)

    def _integer(self, text: str, event: Any) -> int:
        number = int(text, 0 if text[:2] in ("0o", "0x") else 10) if len(text) <= _INTEGER_CHARS_MAX else None
        if number is None or abs(number) > _INTEGER_MAX:
            self.problems.append(
                _at(
                    event,
                    "This whole number is beyond ±(2^53 - 1).",
                    "Other programs would round it: put it in quotes.",
                )
            )
            return 0
        return number

    def _alias(self, event: Any) -> Node:
        self._aliases += 1
        if self._aliases > limits.DEFINITION_ALIASES_MAX:
            limit = limits.DEFINITION_ALIASES_MAX
            raise _Refused(_at(event, f"There are more than {limit} aliases.", "Write the values out."))
        if event.anchor not in self._anchors:
            raise _Refused(_at(event, f"There is no anchor `&{event.anchor}` before this.", "Check the name."))
        node = self._anchors[event.anchor]
        if node is None:
            raise _Refused(_at(event, f"`*{event.anchor}` stands inside itself.", "Write the value out."))
        return node

    def _refuse_tag(self, event: Any) -> None:
        if event.tag is not None:
            self.problems.append(
                _at(event, f"Tags are not supported: `{_short_tag(event.tag)}`.", "Write the plain value.")
            )


class _Collection:
    """A mapping or list that is still being read."""

    def __init__(self, node: Node, event: Any) -> None:
        self.node = node
        self.event = event
        self._is_mapping = isinstance(node.data, dict)
        self._key: str | None = None
        self.wants_key = self._is_mapping

    def take_key(self, key: str | None) -> None:
        """The key of the value to come; None drops that value."""
        self._key = key
        self.wants_key = False

    def add(self, child: Node) -> None:
        if not self._is_mapping:
            self.node.adopt(len(self.node.data), child)
            self.node.data.append(child.data)
            return
        if self._key is not None:
            self.node.adopt(self._key, child)
            self.node.data[self._key] = child.data
        self.wants_key = True


_TOO_DEEP = (
    f"Values are nested more than {limits.DEFINITION_DEPTH_MAX} deep.",
    "Flatten the definition; a real workflow needs a fraction of this.",
)
_TOO_MANY_VALUES = (
    f"There are more than {limits.DEFINITION_VALUES_MAX} values, aliases written out.",
    "Use fewer aliases, or split the workflow.",
)


def _place(event: Any) -> tuple[int, int]:
    return event.start_mark.line + 1, event.start_mark.column + 1


def _at(event: Any, message: str, hint: str) -> Problem:
    return Problem(message, hint, *_place(event))


def _short_tag(tag: str) -> str:
    return tag.replace("tag:yaml.org,2002:", "!!")


def _joined_pair(match: re.Match[str]) -> str:
    high, low = int(match[2], 16), int(match[3], 16)
    return f"{match[1]}\\U{0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00):08x}"


def _refuse_unreadable(text: str) -> None:
    if bad := _UNREADABLE.search(text):
        line = text.count("\n", 0, bad.start()) + 1
        column = bad.start() - (text.rfind("\n", 0, bad.start()) + 1) + 1
        message = f"The character U+{ord(bad[0]):04X} is not allowed in YAML."
        raise _Refused(Problem(message, "Remove it, or write it as an escape in double quotes.", line, column))
    size = len(text.encode())
    if size > limits.DEFINITION_BYTES_MAX:
        message = f"The definition has {size} bytes; {limits.DEFINITION_BYTES_MAX} are allowed."
        raise _Refused(Problem(message, "Move large texts out of the workflow, into its input.", 1, 1))


def _syntax_problem(error: yaml.YAMLError) -> Problem:
    said = str(getattr(error, "problem", None) or "it cannot be read")
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    line, column = (mark.line + 1, mark.column + 1) if mark is not None else (1, 1)
    message, hint = _SYNTAX.get(said, (f"This is not valid YAML: {said}.", "Check the line and the one before it."))
    return Problem(message, hint, line, column)
