import msgspec
import pytest

from sandbox.policy import (
    MIB,
    OPERATOR,
    Bounds,
    ExecProfile,
    Grants,
    PermissionDenied,
    PermissionNotGrantable,
    SecretRef,
    ToolNeeds,
    compile_profile,
    profile_hash,
    refused_profile,
    required_backend,
)


def profile_of(*, role=None, tenant=None, **needs) -> ExecProfile:
    authorities = [grants for grants in (role, tenant) if grants is not None] or [OPERATOR]
    return compile_profile(
        ToolNeeds("kb.search", **needs), backend="process", isolation="full", folder="/srv/app", authorities=authorities
    )


def test_a_tool_that_declares_nothing_gets_nothing():
    profile = profile_of()

    assert profile.network == ()
    assert not profile.egress
    assert profile.environment == {"HOME": "/sandbox"}, "a place of its own, gone with the call"
    assert profile.secrets == ()
    assert profile.readable == profile.writable == profile.permissions == ()


def test_declared_needs_become_grants():
    profile = profile_of(
        permissions=("network.http:API.example.com", "fs.read:knowledge", "fs.read:/data", "fs.write:out", "fs.tmp"),
        environment={"LANG": "C"},
        timeout_s=2.5,
        memory_bytes=1 << 28,
        secrets=(SecretRef("crm", ("api.example.com",)),),
    )

    assert profile.egress
    assert profile.network == ("api.example.com",)
    assert profile.readable == ("/data", "/srv/app/knowledge")
    assert profile.writable == ("/srv/app/out",)
    assert profile.environment == {"HOME": "/sandbox", "LANG": "C"}
    assert (profile.wall_s, profile.memory_bytes) == (2.5, 1 << 28)
    assert profile.cpu_s >= profile.wall_s
    assert "secret.use:crm" in profile.permissions


@pytest.mark.parametrize(
    "permission",
    [
        "network",
        "network.http",
        "network.http:",
        "network.http:10.0.0.1",
        "network.http:a b",
        "network.ftp:x.org",
        "fs.read:",
        "fs.read",
        "fs.tmp:/x",
        "fs.delete:/x",
        "Network.http:x.org",
        "",
        "exec.*",
        "network.http:[::1]",
    ],
)
def test_a_permission_that_cannot_be_granted_exactly_is_refused_not_widened(permission):
    with pytest.raises(PermissionNotGrantable) as caught:
        profile_of(permissions=("fs.tmp", permission))

    assert caught.value.code == "AF1402"


def test_a_denial_names_the_missing_grant_who_withholds_it_and_how_to_get_it():
    reader = Grants("the role `reader`", allow=("fs.tmp", "network.http:*.example.com"))
    acme = Grants("the tenant `acme`", allow=("*",), deny=("network.http:admin.example.com",))

    with pytest.raises(PermissionDenied) as caught:
        profile_of(
            role=reader,
            tenant=acme,
            permissions=("network.http:api.example.com", "network.http:admin.example.com", "fs.read:/data"),
        )

    assert caught.value.code == "AF1410"
    assert [(denial.need, denial.authority) for denial in caught.value.denials] == [
        ("network.http:admin.example.com", "the tenant `acme`"),
        ("fs.read:/data", "the role `reader`"),
    ]
    said = str(caught.value)
    assert "`fs.read:/data` is not granted by the role `reader`. (Have `fs.read:/data` added to its `allow`.)" in said
    assert "`network.http:admin.example.com` is forbidden by the tenant `acme`" in said


def test_a_secret_needs_a_grant_of_its_own():
    role = Grants("the role `reader`", allow=("network.http:*",))

    with pytest.raises(PermissionDenied, match=r"secret\.use:crm"):
        profile_of(role=role, permissions=("network.http:a.org",), secrets=(SecretRef("crm"),))


def test_a_need_that_a_denial_only_touches_is_refused_whole():
    tenant = Grants("acme", allow=("*",), deny=("fs.read:/data/secret",))

    with pytest.raises(PermissionDenied):
        profile_of(tenant=tenant, permissions=("fs.read:/data",))
    assert profile_of(tenant=tenant, permissions=("fs.read:/data/open",)).readable == ("/data/open",)


def test_a_path_cannot_climb_out_of_its_grant():
    role = Grants("the role `reader`", allow=("fs.read:/srv/app",))

    assert profile_of(role=role, permissions=("fs.read:knowledge",)).readable == ("/srv/app/knowledge",)
    for path in ("../other", "/srv/application", "knowledge/../../other"):
        with pytest.raises(PermissionDenied):
            profile_of(role=role, permissions=(f"fs.read:{path}",))


def test_of_all_bounds_the_lowest_holds():
    role = Grants("role", allow=("*",), bounds=Bounds(wall_s=5, memory_bytes=512 * MIB, cpus=2.0))
    tenant = Grants("tenant", allow=("*",), bounds=Bounds(wall_s=9, memory_bytes=64 * MIB, processes_max=4))

    profile = profile_of(role=role, tenant=tenant, timeout_s=30, memory_bytes=128 * MIB, cpus=1.0)

    assert (profile.wall_s, profile.memory_bytes, profile.cpus) == (5, 64 * MIB, 1.0)
    assert profile.processes_max == 4
    assert profile.cpu_s == 6


def test_the_strongest_backend_that_anyone_insists_on_is_the_one():
    gvisor = Grants("tenant", sandbox="gvisor")

    assert required_backend("process", tool=ToolNeeds("t")) == "process"
    assert required_backend("docker", tool=ToolNeeds("t", sandbox="process")) == "docker"
    assert required_backend("process", tool=ToolNeeds("t", sandbox="docker"), authorities=[gvisor]) == "gvisor"
    assert required_backend("process", tool=ToolNeeds("t", sandbox="firecracker")) == "firecracker"  # refused by name


def test_the_hash_names_the_content_and_nothing_else():
    base = profile_of(permissions=("network.http:a.org", "fs.tmp"))

    assert profile_hash(base) == profile_hash(profile_of(permissions=("fs.tmp", "network.http:A.org", "fs.tmp")))
    for changed in (
        msgspec.structs.replace(base, network=()),
        msgspec.structs.replace(base, isolation="reduced"),
        msgspec.structs.replace(base, environment={"A": "1"}),
        msgspec.structs.replace(base, wall_s=base.wall_s + 1),
        msgspec.structs.replace(base, backend="docker"),
    ):
        assert profile_hash(changed) != profile_hash(base)


def test_a_call_that_was_refused_has_a_profile_that_grants_nothing_at_all():
    profile = refused_profile("gvisor")

    assert (profile.permissions, profile.network, profile.readable, profile.secrets) == ((), (), (), ())
    assert (profile.wall_s, profile.memory_bytes, profile.processes_max, profile.disk_bytes) == (0, 0, 0, 0)
    assert profile_hash(profile) != profile_hash(refused_profile("process"))
