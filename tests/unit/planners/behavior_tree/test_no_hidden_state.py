"""A linter for nodes: whatever a node knows of its past is in the run's memory, or the tree cannot be resumed."""

import ast
import importlib
import pkgutil
from pathlib import Path

import pytest

import planners.behavior_tree
from planners.behavior_tree.node import Node

FOLDER = Path(planners.behavior_tree.__file__).parent
# A tick is made for one outcome and thrown away; whatever else there is sets its attributes once, when it is made.
MADE_ANEW = {"tick.py": {"Tick"}}
MAKERS = {"__init__"}


def node_classes() -> list[type[Node]]:
    for module in pkgutil.iter_modules([str(FOLDER)]):
        importlib.import_module(f"planners.behavior_tree.{module.name}")
    found, rest = [], [Node]
    while rest:
        kind = rest.pop()
        found.append(kind)
        rest += kind.__subclasses__()
    return found


def test_every_kind_of_node_is_frozen():
    kinds = node_classes()

    assert len(kinds) > 20
    assert [kind.__name__ for kind in kinds if not kind.__struct_config__.frozen] == []


def hidden_state(source: str, *, made_anew: frozenset[str] = frozenset()) -> list[str]:
    """Assignments to attributes outside of constructors, and names that a module changes for everybody."""
    found = []
    for top in ast.parse(source).body:
        if isinstance(top, ast.ClassDef) and top.name in made_anew:
            continue
        for inner in ast.walk(top):
            if isinstance(inner, ast.Global | ast.Nonlocal):
                found.append(f"{inner.lineno}: {', '.join(inner.names)}")
            if isinstance(inner, ast.FunctionDef) and inner.name not in MAKERS:
                found += [f"{it.lineno}: {ast.unparse(it)}" for it in ast.walk(inner) if _stores(it)]
    return found


def _stores(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        return ast.unparse(node.func) in ("setattr", "object.__setattr__", "msgspec.structs.force_setattr")
    return isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del)


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda path: path.name)
def test_nothing_but_a_tick_changes_while_a_tree_runs(path):
    if path.name == "compile.py":
        return  # works before there is a tree
    assert hidden_state(path.read_text(), made_anew=frozenset(MADE_ANEW.get(path.name, ()))) == []


def test_the_linter_finds_what_it_looks_for():
    source = (
        "class N:\n def enter(self, t):\n  self.seen = 1\n  object.__setattr__(self, 'x', 2)\n  global g\n  del t.y\n"
    )

    assert len(hidden_state(source)) == 4
