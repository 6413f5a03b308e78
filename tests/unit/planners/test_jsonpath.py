"""JSONPath as RFC 9535 has it, over the names in scope; the tables follow the sections of the RFC."""

# ruff: noqa: E501 - a row of a table is one line

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentflow import limits
from agentflow.contracts.step import StepFault
from agentflow.execution.events import WorkflowRef
from agentflow.ids import WorkflowId
from planners.expressions.conditions import compile_condition
from planners.expressions.evaluate import compile_expression
from planners.expressions.jsonpath_query import BadPath, Exhausted, parse_query
from planners.expressions.scope import Facts, Scope
from planners.expressions.shapes import ANYTHING, Shape, record
from planners.expressions.templates import compile_template

WORKFLOW = WorkflowRef(WorkflowId("wf_1"), "support", "1.0.0", "digest")

STORE = {
    "store": {
        "book": [
            {"category": "reference", "author": "Nigel Rees", "title": "Sayings of the Century", "price": 8.95},
            {"category": "fiction", "author": "Evelyn Waugh", "title": "Sword of Honour", "price": 12.99},
            {"category": "fiction", "author": "Herman Melville", "title": "Moby Dick", "isbn": "0-553-21311-3", "price": 8.99},
            {"category": "fiction", "author": "J. R. R. Tolkien", "title": "The Lord of the Rings", "isbn": "0-395-19395-8", "price": 22.99},
        ],
        "bicycle": {"color": "red", "price": 399},
    }
}  # fmt: skip
LETTERS = ["a", "b", "c", "d", "e", "f", "g"]
FILTERS = {
    "a": [3, 5, 1, 2, 4, 6, {"b": "j"}, {"b": "k"}, {"b": {}}, {"b": "kilo"}],
    "o": {"p": 1, "q": 2, "r": 3, "s": 5, "t": {"u": 6}},
    "e": "f",
}
COMPARED = {"obj": {"x": "y"}, "arr": [2, 3]}
NULLS = {"a": None, "b": [None], "c": [{}], "null": 1}
DESCENDED = {"o": {"j": 1, "k": 2}, "a": [5, 3, [{"j": 4}, {"k": 6}]]}


def paths(query: str, document) -> list[str]:
    return [path for path, _ in parse_query(query).find(document)]


def values(query: str, document) -> list:
    return [value for _, value in parse_query(query).find(document)]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("$.store.book[*].author", ["Nigel Rees", "Evelyn Waugh", "Herman Melville", "J. R. R. Tolkien"]),
        ("$..author", ["Nigel Rees", "Evelyn Waugh", "Herman Melville", "J. R. R. Tolkien"]),
        ("$.store..price", [8.95, 12.99, 8.99, 22.99, 399]),
        ("$..book[2].author", ["Herman Melville"]),
        ("$..book[2].publisher", []),
        ("$..book[-1].title", ["The Lord of the Rings"]),
        ("$..book[0,1].price", [8.95, 12.99]),
        ("$..book[:2].price", [8.95, 12.99]),
        ("$..book[?@.isbn].price", [8.99, 22.99]),
        ("$..book[?@.price<10].title", ["Sayings of the Century", "Moby Dick"]),
    ],
)
def test_the_overview_of_the_rfc(query, found):
    assert values(query, STORE) == found


@pytest.mark.parametrize(
    ("query", "document", "found"),
    [
        ("$", {"k": "v"}, ["$"]),
        ("$.o['j j']", {"o": {"j j": 1}}, ["$['o']['j j']"]),
        ("$.o['j j']['k.k']", {"o": {"j j": {"k.k": 3}}}, ["$['o']['j j']['k.k']"]),
        ('$["\'"]["@"]', {"'": {"@": 2}}, ["$['\\'']['@']"]),
        ("$.a[-1]", {"a": [1, 2]}, ["$['a'][1]"]),
        ("$.a[1:3]", {"a": [1, 2, 3]}, ["$['a'][1]", "$['a'][2]"]),
        ('$["\\u000B"]', {"\x0b": 1}, ["$['\\u000b']"]),
        ('$["\\u0061"]', {"a": 1}, ["$['a']"]),
        ("$.o[*]", {"o": {"j": 1, "k": 2}}, ["$['o']['j']", "$['o']['k']"]),
    ],
)
def test_every_match_has_a_normalized_path(query, document, found):
    assert paths(query, document) == found


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("$[1]", ["b"]), ("$[-2]", ["f"]), ("$[7]", []), ("$[-8]", []),
        ("$[1:3]", ["b", "c"]), ("$[5:]", ["f", "g"]), ("$[1:5:2]", ["b", "d"]), ("$[5:1:-2]", ["f", "d"]),
        ("$[::-1]", ["g", "f", "e", "d", "c", "b", "a"]), ("$[:]", LETTERS), ("$[::]", LETTERS),
        ("$[::0]", []), ("$[-3:]", ["e", "f", "g"]), ("$[:-5]", ["a", "b"]), ("$[10:20]", []), ("$[-100:2]", ["a", "b"]),
        ("$[0:2, 5]", ["a", "b", "f"]), ("$[0, 0]", ["a", "a"]), ("$['a']", []), ("$.a", []),
    ],
)  # fmt: skip
def test_indexes_and_slices(query, found):
    assert values(query, LETTERS) == found


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("$.a[?@.b == 'kilo']", [{"b": "kilo"}]), ("$.a[?(@.b == 'kilo')]", [{"b": "kilo"}]), ("$.a[?@>3.5]", [5, 4, 6]),
        ("$.a[?@.b]", [{"b": "j"}, {"b": "k"}, {"b": {}}, {"b": "kilo"}]), ("$[?@.*]", [FILTERS["a"], FILTERS["o"]]),
        ("$[?@[?@.b]]", [FILTERS["a"]]), ("$.o[?@<3, ?@<3]", [1, 2, 1, 2]),
        ("$.a[?@<2 || @.b == \"k\"]", [1, {"b": "k"}]), ('$.a[?match(@.b, "[jk]")]', [{"b": "j"}, {"b": "k"}]),
        ('$.a[?search(@.b, "[jk]")]', [{"b": "j"}, {"b": "k"}, {"b": "kilo"}]), ("$.o[?@>1 && @<4]", [2, 3]),
        ("$.o[?@.u || @.x]", [{"u": 6}]), ("$.a[?@.b == $.x]", [3, 5, 1, 2, 4, 6]),
        ("$.a[?@ == @]", [3, 5, 1, 2, 4, 6, {"b": "j"}, {"b": "k"}, {"b": {}}, {"b": "kilo"}]),
        ("$.a[?!@.b]", [3, 5, 1, 2, 4, 6]), ("$.a[?length(@.b) > 1]", [{"b": "kilo"}]), ("$[?count(@.*) == 5]", [FILTERS["o"]]),
        ("$.a[?value(@..b) == 'j']", [{"b": "j"}]), ("$.o[?@ == $.o.p]", [1]),
    ],
)  # fmt: skip
def test_filters(query, found):
    assert values(query, FILTERS) == found


@pytest.mark.parametrize(
    ("comparison", "holds"),
    [
        ("$.absent1 == $.absent2", True), ("$.absent1 <= $.absent2", True), ("$.absent == 'g'", False),
        ("$.absent1 != $.absent2", False), ("$.absent != 'g'", True), ("1 <= 2", True), ("1 > 2", False), ("13 == '13'", False),
        ("'a' <= 'b'", True), ("'a' > 'b'", False), ("$.obj == $.arr", False), ("$.obj != $.arr", True), ("$.obj == $.obj", True),
        ("$.obj != $.obj", False), ("$.arr == $.arr", True), ("$.arr != $.arr", False), ("$.obj == 17", False), ("$.obj != 17", True),
        ("$.obj <= $.arr", False), ("$.obj < $.arr", False), ("$.obj <= $.obj", True), ("$.arr <= $.arr", True), ("1 <= $.arr", False),
        ("1 >= $.arr", False), ("1 > $.arr", False), ("1 < $.arr", False), ("true <= true", True), ("true > true", False),
        ("true == 1", False), ("false == 0", False), ("1 == 1.0", True), ("null == null", True), ("null == $.absent", False),
    ],
)  # fmt: skip
def test_comparisons(comparison, holds):
    assert bool(values(f"$[?{comparison}]", COMPARED)) is holds


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("$.a", [None]), ("$.a[0]", []), ("$.a.d", []), ("$.b[0]", [None]), ("$.b[*]", [None]), ("$.b[?@]", [None]),
        ("$.b[?@==null]", [None]), ("$.c[?@.d==null]", []), ("$.null", [1]),
    ],
)  # fmt: skip
def test_null_is_a_value_and_nothing_is_none(query, found):
    assert values(query, NULLS) == found


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("$..j", [1, 4]), ("$..[0]", [5, {"j": 4}]),
        ("$..*", [{"j": 1, "k": 2}, [5, 3, [{"j": 4}, {"k": 6}]], 1, 2, 5, 3, [{"j": 4}, {"k": 6}], {"j": 4}, {"k": 6}, 4, 6]),
        ("$..o", [{"j": 1, "k": 2}]), ("$.a..[0, 1]", [5, 3, {"j": 4}, {"k": 6}]),
    ],
)  # fmt: skip
def test_descendants_come_parents_first(query, found):
    assert values(query, DESCENDED) == found


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        ("a.c", "abc", "a\nc"), ("a.c", "a😀c", "a\rc"), ("[a-z]+", "abc", "ABC"), ("\\\\p{Lu}", "É", "é"),
        ("a{2,3}", "aaa", "aaaa"), ("(ab|cd)*", "abcd", "abc"), ("[.]", ".", "a"), ("^a$", "^a$", "a"), ("[^a]", "b", "a"), ("\\\\.", ".", "a"),
    ],
)  # fmt: skip
def test_patterns_are_i_regexp_and_match_all_of_a_text(pattern, matching, other):
    assert values(f"$[?match(@, '{pattern}')]", [matching, other]) == [matching]


@pytest.mark.parametrize("pattern", ["(?=a)", "a*+", "\\\\1", "[", "(a", "\\\\d"])
def test_what_is_no_i_regexp_matches_nothing(pattern):
    assert values(f"$[?search(@, '{pattern}')]", ["a", "1", ""]) == []


@pytest.mark.parametrize(
    "query",
    [
        "$[", "$.", "$..", "$[?]", "$.a[?@.b == ]", "$[?@.a == @..b]", "$[?length(@.a)]", "$[?count(1) > 0]", "$[?match(@.a)]", "$[?unknown(@)]",
        "$[01]", "$[-0]", "$[1.0]", "$[9007199254740992]", "$['a', ]", "$.1a", "$.a b", "$x", "$[?@.a = 1]", "$[?@.a === 1]", "$[1:2:3:4]",
        "$[?'a']", "$[?true]", "$[?1]", "$[\"\\x\"]", "$['\\ud800']", "$.*.", "$[?@.a == {}]", "$[?@.a == []]", "$[?!(1)]", "$[?@.a in [1]]",
    ],
)  # fmt: skip
def test_what_the_grammar_refuses_has_a_place(query):
    with pytest.raises(BadPath) as caught:
        parse_query(query)

    assert 0 <= caught.value.offset <= len(query)


NOW = Facts(
    {"items": [{"id": 1, "price": 5}, {"id": 2, "price": 50}], "yes": True, "no": False, "none": None, "zero": 0},
    {"confidence": 0.9, "tags": ["a"]},
    {"classify": {"kind": "refund"}},
    WORKFLOW,
    StepFault("timeout", "No result."),
    vars={"limit": 10},
    env={"REGION": "eu"},
    locals={"item": {"id": 7}},
)
SCOPE = Scope(steps={"classify": ANYTHING}, has_error=True, locals={"item": ANYTHING})


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("${$.input.items[*].id}", [1, 2]), ("${$.input.items[0].id}", 1), ("${$.input.none}", None), ("${$.output.tags}", ["a"]),
        ("${$.input.items[?@.price > $.vars.limit].id}", [2]), ("${$.input.items[?@.price > 99]}", []),
        ("${$.steps.classify.output.kind}", "refund"), ("${$.error.code}", "timeout"), ("${$.env.REGION}", "eu"),
        ("${$.item.id}", 7), ("${$.workflow.name}", "support"), ("${ $.input.items[-1].id }", 2), ("${$..price}", [5, 50]),
        ("ids: ${$.input.items[*].id}, ${$['input'].zero}", "ids: [1,2], 0"), ("${$.input.items[?@.id == 2]['id']}", [2]),
        ("${$.steps[*].output.kind}", ["refund"]),
    ],
)  # fmt: skip
def test_a_path_gives_a_value_or_a_list_of_values(written, value):
    template, faults = compile_template(written, SCOPE)

    assert faults == []
    assert template.render(NOW) == value


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ("$.output.tags[?@ == 'a']", True), ("$.output.tags[?@ == 'b']", False), ("$.output[?@ > 0.8]", True), ("$.input.yes", True),
        ("$.input.no", False), ("$.input.none", True), ("$.input.zero", True), ("$.input.missing", False), ("$.input['no','zero']", True),
        ("  $.input.items[?@.price > 20]", True), ("$", True), ("$.steps.classify.output[?@ == 'refund']", True),
    ],
)  # fmt: skip
def test_a_condition_holds_if_the_path_finds_something_or_says_true(condition, holds):
    expression, faults = compile_condition(condition, SCOPE)

    assert faults == []
    assert expression.holds(NOW) is holds


def test_nothing_at_a_single_path_is_a_fault():
    expression, _ = compile_expression("$.input.missing", SCOPE)

    result = expression.value(NOW)

    assert isinstance(result, StepFault)
    assert result.code == "expression_error"
    assert "there is nothing at this path" in result.message


@pytest.mark.parametrize(
    ("path", "offset", "message", "hint"),
    [
        ("$.inputs.x", 2, "There is no `inputs` here.", "`$.output.inputs`"),
        ("$.ticket", 2, "There is no `ticket` here.", "Did you mean `$.input.ticket`?"),
        ("$.input.tikcet", 8, "`input` has no field `tikcet`.", "Did you mean `ticket`?"),
        ("$['input']['tikcet']", 12, "`input` has no field `tikcet`.", "Did you mean `ticket`?"),
        ("$.steps.clasify.output", 8, "There is no step `clasify`.", "Did you mean `classify`?"),
        ("$.steps.classify.outptu", 17, "`steps.classify` has no field `outptu`.", "Did you mean `output`?"),
        ("  $.input.tikcet[*]", 10, "`input` has no field `tikcet`.", "Did you mean `ticket`?"),
        ("$.error.code", 2, "There is no `error` here.", "on_error"),
        ("$.input.ticket[?@.a = 1]", 20, "The path is not valid", "RFC 9535"),
        ("$.input.ticket == 'x'", 15, "The path is not valid", "Compare in CEL"),
    ],
)
def test_unknown_names_and_bad_syntax_are_found_before_anything_runs(path, offset, message, hint):
    scope = Scope(input=record(ticket=Shape("string")), steps={"classify": ANYTHING})

    expression, checked = compile_expression(path, scope)

    assert expression is None
    ((found_offset, found, said),) = [(fault.offset, fault.message, fault.hint) for fault in checked.faults]
    assert found_offset == offset
    assert message in found
    assert hint in said


@pytest.mark.parametrize(
    "path",
    [
        "$..*..*..*..*", "$" + "[*,*]" * 20, "$..[?@..[?@..*]]", "$.input[?count($..*) > 0]", "$..*[?@ == $.input]",
        "$.input[*][?search(@.text, '(a|b|ab)*c')]",
    ],
)  # fmt: skip
def test_a_search_that_would_grow_without_end_is_stopped(path):
    document = [[{"n": n, "text": "ab" * 500, "rows": [[n] * 5] * 5}] for n in range(100)]
    expression, checked = compile_expression(path, Scope())
    assert checked.faults == ()

    result = expression.value(Facts(document, None, {}, WORKFLOW))

    assert isinstance(result, StepFault)
    assert "too many values" in result.message


def test_a_search_looks_at_no_more_values_than_allowed():
    query = parse_query("$[*]")

    assert len(query.find([0] * limits.JSONPATH_VALUES_MAX)) == limits.JSONPATH_VALUES_MAX
    with pytest.raises(Exhausted):
        query.find([0] * (limits.JSONPATH_VALUES_MAX + 1))


@pytest.mark.parametrize(
    "path",
    ["$[?" + "(" * 500 + "@.a" + ")" * 500 + "]", "$" + "[?@" * 200 + "]" * 200, "$." + "a" * 5000, "$" + ".a" * 300],
)
def test_a_hostile_path_is_refused(path):
    expression, checked = compile_expression(path, Scope())

    assert expression is None
    assert len(checked.faults) == 1


def test_a_deep_document_is_no_crash():
    deep: object = 1
    for _ in range(5_000):
        deep = [deep]
    expression, _ = compile_expression("$..[?@ == $.input]", Scope())

    assert isinstance(expression.value(Facts(deep, None, {}, WORKFLOW)), StepFault | list)


@given(st.text(alphabet="$.[]?@*:,'\"ab01-=<>!&|() \\", max_size=30).map("$".__add__))
def test_any_text_after_a_dollar_is_a_path_or_has_a_fault_and_nothing_is_raised(text):
    expression, checked = compile_expression(text, Scope())

    assert (expression is None) == bool(checked.faults)
    assert all(0 <= fault.offset <= len(text) for fault in checked.faults)
    if expression is not None:
        expression.value(NOW)
        expression.holds(NOW)
