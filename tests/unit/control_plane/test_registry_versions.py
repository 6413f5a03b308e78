import random

from control_plane.registry.versions import precedence


def test_versions_rank_as_semantic_versioning_says() -> None:
    ranked = [
        "1.0.0-alpha",
        "1.0.0-alpha.1",
        "1.0.0-alpha.beta",
        "1.0.0-beta",
        "1.0.0-beta.2",
        "1.0.0-beta.11",
        "1.0.0-rc.1",
        "1.0.0",
        "1.2.0",
        "1.10.0",
        "2.0.0",
    ]
    mixed = random.Random(7).sample(ranked, len(ranked))

    assert sorted(mixed, key=precedence) == ranked


def test_a_release_ranks_above_every_pre_release() -> None:
    assert max(["1.9.0", "2.0.0-rc.1"], key=precedence) == "1.9.0"
    assert max(["1.9.0-rc.1", "2.0.0-alpha"], key=precedence) == "2.0.0-alpha"


def test_build_metadata_does_not_count() -> None:
    assert precedence("1.0.0+build.9") == precedence("1.0.0")
