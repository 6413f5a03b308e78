import io
from pathlib import Path
from types import SimpleNamespace

import pytest

from agentflow.cli.inputs import UnusableInput, execution_input


def test_without_anything_the_input_is_an_empty_object() -> None:
    assert execution_input(None, None, []) == {}


def test_json_is_taken_as_it_is() -> None:
    assert execution_input('{"ticket": "x", "n": [1, null]}', None, []) == {"ticket": "x", "n": [1, None]}


def test_a_file_is_read_by_either_spelling(tmp_path: Path) -> None:
    file = tmp_path / "in.json"
    file.write_text('{"ticket": "é"}')

    assert execution_input(f"@{file}", None, []) == execution_input(None, file, []) == {"ticket": "é"}


def test_a_dash_reads_stdin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(b'{"a": 1}')))

    assert execution_input("-", None, []) == {"a": 1}


def test_pairs_are_laid_over_the_rest_and_are_json_where_they_can_be() -> None:
    pairs = ["severity=3", "ticket=it is on fire", "tags=[1]", "equation=a=b", "empty=", 'quoted="3"']

    assert execution_input('{"severity": 1, "kept": true}', None, pairs) == {
        "severity": 3,
        "kept": True,
        "ticket": "it is on fire",
        "tags": [1],
        "equation": "a=b",
        "empty": "",
        "quoted": "3",
    }


@pytest.mark.parametrize(
    ("given", "file", "pairs", "told"),
    [
        ("{oops", None, [], "--input is not JSON"),
        ("@no/such.json", None, [], "no/such.json cannot be read"),
        (None, Path("no/such.json"), [], "no/such.json cannot be read"),
        ("{}", Path("x.json"), [], "given twice"),
        ("[1]", None, ["a=1"], "need an object"),
        (None, None, ["nonsense"], "`nonsense` is not key=value"),
        (None, None, ["=1"], "is not key=value"),
    ],
)
def test_what_cannot_be_used_is_refused_with_its_reason(
    given: str | None, file: Path | None, pairs: list[str], told: str
) -> None:
    with pytest.raises(UnusableInput) as caught:
        execution_input(given, file, pairs)

    assert told in caught.value.message
