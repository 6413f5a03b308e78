import pytest

from sandbox.versions import numbers, warning


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("1.1.5+ds1-1+deb12u1", (1, 1, 5)),
        ("runc version 1.3.3", (1, 3, 3)),
        ("release-20221219.0", (20221219,)),
        ("0.0~20221219.0", (20221219,)),
        ("bubblewrap 0.8.0", (0, 8, 0)),
        ("unknown", ()),
    ],
)
def test_versions_are_read_as_they_are_written(text, read):
    assert numbers(text) == read


@pytest.mark.parametrize(
    ("component", "version", "trusted"),
    [
        ("runc", "1.1.5+ds1", False),
        ("runc", "1.2.7", False),
        ("runc", "1.2.8", True),
        ("runc", "1.3.2", False),
        ("runc", "1.3.3", True),
        ("runc", "1.4.0", True),
        ("runc", "2.0.0", True),
        ("runc", "garbage", False),
        ("runsc", "release-20221219.0", False),
        ("runsc", "release-20250407.0", True),
        ("bubblewrap", "0.8.0", True),
        ("bubblewrap", "0.4.1", False),
        ("wasmtime", "50.0.1", True),
    ],
)
def test_a_runtime_with_a_known_escape_is_named(component, version, trusted):
    said = warning(component, version)

    assert (said is None) is trusted
    assert said is None or component in said
