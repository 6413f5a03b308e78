"""Expressions that mean harm: each must be refused or answered at once, whichever engine is asked.

Measured by `bench.subjects.expressions`; that none of them crashes or is believed is tested with the planners.
"""

from typing import Any, NamedTuple


class Hostile(NamedTuple):
    why: str
    text: str
    data: Any = None  # the previous output that the expression is evaluated over


_TEXT = "ab" * 250_000
_ROWS = [{"id": n, "name": f"row {n}", "tags": ["x"] * 5} for n in range(1_000)]
_NUMBERS = list(range(10_000))
_NESTED: Any = 1
for _ in range(200):
    _NESTED = {"a": _NESTED, "b": [_NESTED]} if _ % 20 == 0 else [_NESTED]

CORPUS = (
    # Loops.
    Hostile("three loops", "a.all(x, a.all(y, a.all(z, x + y + z > 0)))", {"a": _NUMBERS[:100]}),
    Hostile("two loops over many", "a.all(x, a.all(y, x >= 0 && y >= 0))", {"a": _NUMBERS}),
    Hostile("two loops over some", "a.all(x, a.all(y, x >= 0 && y >= 0))", {"a": _NUMBERS[:100]}),
    Hostile("long body", "a.all(x, " + " && ".join(["x >= 0"] * 150) + ")", {"a": _NUMBERS}),
    Hostile("long body, some", "a.all(x, " + " && ".join(["x >= 0"] * 150) + ")", {"a": _NUMBERS[:40]}),
    Hostile("many iterations", "a.exists(x, x < 0)", {"a": _NUMBERS}),
    Hostile("as many as allowed", "a.exists(x, x < 0)", {"a": _NUMBERS[:5_900]}),
    Hostile("map of many", "a.map(x, x)", {"a": _NUMBERS}),
    Hostile("maps in a chain", "a.map(x, x).map(x, x).map(x, x).map(x, x)", {"a": _NUMBERS[:300]}),
    Hostile("map in map", "a.map(x, a.map(y, y))", {"a": _NUMBERS[:80]}),
    Hostile("map of sums", "(a + a + a + a).map(x, x)", {"a": _NUMBERS[:300]}),
    Hostile("map in all", "a.all(x, size(a.map(y, y)) > 0)", {"a": _NUMBERS[:80]}),
    Hostile("filters in a chain", "a.filter(x, x != 1).filter(x, x != 2).filter(x, x != 3)", {"a": _NUMBERS[:300]}),
    Hostile("search in a loop", "a.all(x, x in a)", {"a": _NUMBERS}),
    Hostile("search in a loop, rows", "a.all(x, x in a)", {"a": _ROWS}),
    Hostile("search in a loop, some", "a.all(x, x in a)", {"a": _NUMBERS[:200]}),
    Hostile("equality in a loop", "a.all(x, a == a)", {"a": _ROWS}),
    Hostile("size of text in a loop", "a.all(x, size(s) > 0)", {"a": _NUMBERS, "s": _TEXT}),
    Hostile("pattern in a loop", "a.all(x, !s.matches('(a|b|ab)*c'))", {"a": _NUMBERS[:100], "s": _TEXT}),
    Hostile("literal list", "[" + ",".join("0" for _ in range(2_000)) + "].map(x, x)", {}),
    Hostile("literal list in a loop", "a.all(x, x in [" + ",".join("1" for _ in range(1_900)) + "])", {"a": _NUMBERS}),
    # Growth.
    Hostile("sum of texts", "size(" + " + ".join(["s"] * 17) + ")", {"s": _TEXT}),
    Hostile("doubling", "[s].map(x, x + x).map(x, x + x).map(x, x + x).map(x, x + x)", {"s": _TEXT}),
    Hostile("growing in a chain", "[s]" + ".map(x, x + x + x + x + x)" * 4, {"s": "x" * 5_000}),
    Hostile("lists in lists", "[a].map(x, [x, x, x]).map(x, [x, x, x]).map(x, [x, x, x])", {"a": _NUMBERS[:300]}),
    Hostile("doubled lists", "[a].map(x, x + x).map(x, x + x)[0].map(x, x)", {"a": _NUMBERS[:300]}),
    Hostile("many additions", "+".join(["s"] * 300), {"s": _TEXT}),
    Hostile("large numbers", " * ".join(["9223372036854775807"] * 30), {}),
    Hostile("powers", "a" + " * a" * 30, {"a": 9_007_199_254_740_992}),
    Hostile("huge number", "1" * 4_000 + " > 0", {}),
    Hostile("huge exponent", "1e999999999 > 0.0", {}),
    # Nesting.
    Hostile("brackets", "(" * 2_000 + "a" + ")" * 2_000, {}),
    Hostile("lists", "[" * 2_000 + "]" * 2_000, {}),
    Hostile("objects", "{'a':" * 600 + "1" + "}" * 600, {}),
    Hostile("fields", "a" + ".a" * 2_000, {"a": _NESTED}),
    Hostile("indexes", "a" + "[0]" * 1_300, {"a": _NESTED}),
    Hostile("negations", "!" * 4_000 + "a", {"a": True}),
    Hostile("signs", "-" * 4_000 + "a", {"a": 1}),
    Hostile("choices", "a ? 1 : " * 500 + "1", {"a": False}),
    Hostile("conjunction", " && ".join(["a"] * 600), {"a": True}),
    Hostile("alternation", "a" + " || a && a" * 400, {"a": False}),
    Hostile("comparisons", "a" + " == a" * 600, {"a": True}),
    Hostile("too long", "a == '" + "x" * 100_000 + "'", {"a": ""}),
    Hostile("calls", "size(" * 700 + "a" + ")" * 700, {"a": []}),
    Hostile("deep data", "a == a", {"a": _NESTED}),
    # Patterns.
    Hostile("backtracking", "s.matches('(a+)+$')", {"s": "a" * 50_000 + "b"}),
    Hostile("backtracking, twice", "s.matches('(x+x+)+y')", {"s": "x" * 50_000}),
    Hostile("alternatives", "s.matches('(a|aa)+$')", {"s": "a" * 50_000 + "b"}),
    Hostile("counted", "s.matches('((a{0,100}){0,10}){0,10}')", {"s": "a" * 1_000}),
    Hostile("many patterns", " || ".join([f"s.matches('x{n}y+$')" for n in range(150)]), {"s": _TEXT}),
    Hostile("look-ahead", "s.matches('(?=a)')", {"s": "a"}),
    Hostile("back reference", "s.matches('(a)\\\\1')", {"s": "aa"}),
    Hostile("pattern from data", "s.matches(p)", {"s": _TEXT, "p": "(a+)+$"}),
    Hostile("long pattern", "s.matches('" + "(a|b)?" * 600 + "')", {"s": "a" * 600}),
    Hostile("path pattern", "$.output.s[?search(@, '(a|aa)+$')]", {"s": [_TEXT] * 20}),
    # Ways out.
    Hostile("class", "s.__class__", {"s": "x"}),
    Hostile("class of a call", "s.__class__.__mro__[1].__subclasses__()", {"s": "x"}),
    Hostile("globals", "__builtins__.open('/etc/passwd')", {}),
    Hostile("import", "__import__('os').system('true')", {}),
    Hostile("format", "'{0.__class__}'.format([1])", {}),
    Hostile("percent", "'%s' % s", {"s": "x"}),
    Hostile("message", "google.protobuf.Any{type_url: 'x'}", {}),
    Hostile("lambda", "(lambda: 1)()", {}),
    Hostile("attribute by text", "s['__class__']", {"s": "x"}),
    Hostile("key that is a method", "a.keys", {"a": {}}),
    Hostile("walked_", "walked_(a)", {"a": [1]}),
    Hostile("iterations left", "`@iterations`", {}),
    # Paths.
    Hostile("descendants of descendants", "$..*..*..*..*", {"a": _ROWS}),
    Hostile("unions", "$" + "[*,*]" * 100, {"a": _ROWS}),
    Hostile("filters in filters", "$..[?@..[?@..[?@..*]]]", {"a": _ROWS}),
    Hostile("root in a filter", "$.output.a[?count($..*) > 0]", {"a": _ROWS}),
    Hostile("equality in a filter", "$.output.a[?$.output == $.output]", {"a": _ROWS}),
    Hostile("nested filters", "$" + "[?@" * 1_000 + "]" * 1_000, {}),
    Hostile("brackets in a filter", "$[?" + "(" * 2_000 + "@" + ")" * 2_000 + "]", {}),
    Hostile("deep path", "$.output" + "[0]" * 1_300, {"a": _NESTED}),
    Hostile("huge slice", "$.output.a[0:9007199254740991:1]", {"a": _NUMBERS}),
    Hostile("huge index", "$.output.a[99999999999999999999]", {"a": _NUMBERS}),
)
