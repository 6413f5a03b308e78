"""The algebra of grants: two authorities decide as one, in either order, and a denial only ever takes away."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox.permissions import covers, meet, parse
from sandbox.policy import Bounds, Grants, PermissionDenied, ToolNeeds, compile_profile

_labels = st.sampled_from(["a", "b"])
_domains = st.lists(_labels, min_size=1, max_size=3).map(lambda labels: ".".join([*labels, "org"]))
_ports = st.sampled_from(["", ":443", ":80"])
_networks = st.builds(
    lambda action, star, domain, port: f"network.{action}:{star}{domain}{port}",
    st.sampled_from(["http", "smtp", "*"]),
    st.sampled_from(["", "*."]),
    _domains,
    _ports,
)
_paths = st.lists(_labels, max_size=3).map(lambda parts: "/" + "/".join(parts))
_files = st.builds(lambda action, path: f"fs.{action}:{path}", st.sampled_from(["read", "write", "*"]), _paths)
_whole = st.sampled_from(["*", "network.*", "network.http:*", "fs.*", "fs.tmp", "db.read", "db.*", "db.read:orders"])
_permissions = st.one_of(_networks, _files, _whole)
_grants = st.builds(
    lambda name, allow, deny, wall_s: Grants(name, tuple(allow), tuple(deny), Bounds(wall_s=wall_s)),
    st.sampled_from(["a", "b"]),
    st.lists(_permissions, max_size=4),
    st.lists(_permissions, max_size=2),
    st.none() | st.integers(1, 9),
)


@given(_permissions, _permissions)
def test_what_two_permissions_share_is_the_same_from_both_sides_and_inside_each(one, other):
    mine, theirs = parse(one), parse(other)

    common = meet(mine, theirs)

    assert common == meet(theirs, mine)
    if common is not None:
        assert covers(mine, common)
        assert covers(theirs, common)


@given(_permissions)
def test_a_permission_reads_back_as_itself_and_covers_itself(text):
    permission = parse(text)

    assert parse(str(permission)) == permission
    assert covers(permission, permission)


def permits(need, *authorities) -> bool:
    tool = ToolNeeds("tool", permissions=(need,))
    try:
        compile_profile(tool, backend="process", isolation="full", folder="/", authorities=authorities)
    except PermissionDenied:
        return False
    return True


@settings(max_examples=200)
@given(_grants, _grants, _permissions)
def test_two_authorities_together_permit_exactly_what_each_permits(one, other, need):
    assert permits(need, one, other) == permits(need, other, one) == (permits(need, one) and permits(need, other))


@settings(max_examples=200)
@given(_grants, _permissions, _permissions)
def test_another_denial_never_grants(grants, denial, need):
    stricter = Grants(grants.authority, grants.allow, (*grants.deny, denial))

    assert permits(need, grants) or not permits(need, stricter)


@settings(max_examples=200)
@given(_grants, _permissions, _permissions)
def test_a_permission_more_never_takes_away(grants, permission, need):
    wider = Grants(grants.authority, (*grants.allow, permission), grants.deny)

    assert permits(need, wider) or not permits(need, grants)


@pytest.mark.parametrize(
    ("wide", "narrow", "covered"),
    [
        ("network.http:*.example.com", "network.http:api.example.com", True),
        ("network.http:*.example.com", "network.http:example.com", False),
        ("network.http:*.example.com", "network.http:evilexample.com", False),
        ("network.http:example.com", "network.http:example.com.evil.org", False),
        ("network.http:example.com", "network.http:example.com:8443", True),
        ("network.http:example.com:443", "network.http:example.com", False),
        ("network.http:*", "network.smtp:example.com", False),
        ("fs.read:/data", "fs.read:/data/x", True),
        ("fs.read:/data", "fs.read:/database", False),
        ("fs.read:/data", "fs.write:/data", False),
        ("fs.read:/data/..", "fs.read:/etc", True),
        ("k8s.*", "k8s.get:pods", True),
        ("db.read", "db.read:orders", True),
        ("db.read:orders", "db.read", False),
    ],
)
def test_a_grant_covers_what_lies_inside_it_and_nothing_beside(wide, narrow, covered):
    assert covers(parse(wide), parse(narrow)) is covered
