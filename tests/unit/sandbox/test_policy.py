import msgspec
import pytest

from sandbox.policy import ExecProfile, PermissionNotGrantable, ToolNeeds, compile_profile, profile_hash


def profile_of(**needs) -> ExecProfile:
    return compile_profile(ToolNeeds("kb.search", **needs), backend="process", isolation="full", folder="/srv/app")


def test_a_tool_that_declares_nothing_gets_nothing():
    profile = profile_of()

    assert not profile.network
    assert profile.environment == {}
    assert profile.readable == profile.writable == profile.permissions == ()


def test_declared_needs_become_grants():
    profile = profile_of(
        permissions=("network", "fs.read:knowledge", "fs.read:/data", "fs.write:out", "fs.tmp"),
        environment={"LANG": "C"},
        timeout_s=2.5,
        memory_bytes=1 << 28,
    )

    assert profile.network
    assert profile.readable == ("/data", "/srv/app/knowledge")
    assert profile.writable == ("/srv/app/out",)
    assert profile.environment == {"LANG": "C"}
    assert (profile.wall_s, profile.memory_bytes) == (2.5, 1 << 28)
    assert profile.cpu_s >= profile.wall_s


@pytest.mark.parametrize("permission", ["network.http:api.example.com", "fs.read:", "fs.read", "k8s.*", "Network", ""])
def test_a_permission_that_cannot_be_granted_exactly_is_refused_not_widened(permission):
    with pytest.raises(PermissionNotGrantable) as caught:
        profile_of(permissions=("fs.tmp", permission))

    assert caught.value.code == "AF1402"
    assert "fs.tmp," not in str(caught.value.message)


def test_the_hash_names_the_content_and_nothing_else():
    base = profile_of(permissions=("network", "fs.tmp"))

    assert profile_hash(base) == profile_hash(profile_of(permissions=("fs.tmp", "network", "network")))
    for changed in (
        msgspec.structs.replace(base, network=False),
        msgspec.structs.replace(base, isolation="reduced"),
        msgspec.structs.replace(base, environment={"A": "1"}),
        msgspec.structs.replace(base, wall_s=base.wall_s + 1),
    ):
        assert profile_hash(changed) != profile_hash(base)
