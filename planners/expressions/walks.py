"""Which macro gives a name to what: `item` in `input.items.all(item, item.price > 0)` is an item of `input.items`."""

from collections.abc import Sequence

from planners.expressions.bounds import is_macro
from planners.expressions.lexer import NamePath, Token, closing
from planners.expressions.scope import Scope
from planners.expressions.shapes import Shape


class Walks:
    """The macros of one expression, as places in its words."""

    def __init__(self, words: Sequence[Token], paths: Sequence[NamePath]) -> None:
        self._words = words
        self._at = {word.start: at for at, word in enumerate(words)}
        self._ends = {self._at[path.starts[-1]]: path for path in paths}  # by the word that ends each path
        # The brackets of each macro.
        self.macros = [
            (at, closing(words, at) or len(words)) for at in range(len(words) - 1) if is_macro(words, at)
        ]  # fmt: skip

    def walked_by(self, path: NamePath) -> int | None:
        """The bracket of the innermost macro whose item a path begins with."""
        place = self._at[path.starts[0]]
        around = [
            at for at, end in self.macros if at + 1 < place < end and self._words[at + 1].text == path.parts[0]
        ]  # fmt: skip
        return max(around, default=None)

    def shape_of_root(self, path: NamePath, scope: Scope) -> Shape | None:
        """What is known of the first name of a path; None where nothing is."""
        bracket = self.walked_by(path)
        if bracket is None:
            return scope.root(path.parts[0])
        return self._shape_of_items(bracket, scope)

    def within(self, paths: Sequence[NamePath], bracket: int) -> list[NamePath]:
        """The paths inside of a macro, without the name that it gives to its item."""
        end = dict(self.macros)[bracket]
        names = {at + 1 for at, _ in self.macros}
        return [
            path for path in paths if bracket < (at := self._at[path.starts[0]]) < end and at not in names
        ]  # fmt: skip

    def names_inside(self, bracket: int) -> set[str]:
        """The names that the macros inside of a macro give to their items."""
        end = dict(self.macros)[bracket]
        return {self._words[at + 1].text for at, _ in self.macros if bracket < at < end}

    def _shape_of_items(self, bracket: int, scope: Scope) -> Shape | None:
        before = bracket - 3  # before the bracket stand the macro's name, a dot and what it walks
        filtered = next((at for at, end in self.macros if end == before and self._words[at - 1].text == "filter"), None)
        if filtered is not None:
            return self._shape_of_items(filtered, scope)
        walked = self._ends.get(before)
        if walked is None:
            return None
        shape = self.shape_of_root(walked, scope)
        for part in walked.parts[1:]:
            shape = None if shape is None else shape.fields.get(part)
        return None if shape is None else shape.items
