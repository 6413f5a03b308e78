"""Names, grants and addresses: what is let through is a short list, and everything else is not on it."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.egress.policy import (
    Grant,
    Reach,
    Refused,
    judge_addresses,
    judge_name,
    parse_authority,
    parse_grant,
    parse_host,
    why_not,
)

ALLOWED = (parse_grant("allowed.com"), parse_grant("*.wide.example"))


def refusal(function, *arguments, **named) -> str:
    with pytest.raises(Refused) as refused:
        function(*arguments, **named)
    return refused.value.code


@pytest.mark.parametrize("grants", [(), []])
def test_an_empty_list_allows_nothing(grants):
    assert refusal(judge_name, "allowed.com", 443, grants, tool="t") == "not_granted"


@pytest.mark.parametrize("text", ["allowed.com", "ALLOWED.com", "Allowed.Com."])
def test_a_name_has_one_spelling(text):
    assert parse_host(text) == "allowed.com"


@pytest.mark.parametrize(
    "text",
    [
        *("", ".", "..", "allowed..com", ".allowed.com", "allowed.com..", "-allowed.com", "allowed-.com"),
        *("evil.example\0.allowed.com", "evil.example%00.allowed.com", "allowed.com\r\n", "allowed.com\tevil"),
        *("allowed.com evil", "user@allowed.com", "allowed.com@evil", "evil\\.allowed.com", "allowed.com/evil"),
        *(
            "allowed.com#evil",
            "allowed.com?evil",
            "*.allowed.com",
            "\u0430llowed.com",
            "allowed\u3002com",
            "\uff41llowed.com",
        ),
        *("a" * 64 + ".com", "a." * 130 + "com", "[allowed.com]", "allowed.com:443:1", "fe80::1%eth0"),
    ],
)
def test_a_name_that_could_be_read_in_two_ways_is_refused_before_it_is_matched(text):
    assert refusal(parse_host, text) == "name_invalid"


@pytest.mark.parametrize(
    "host", ["allowed.com.evil", "evilallowed.com", "evil.allowed.com", "wide.example", "notwide.example", "com"]
)
def test_a_grant_covers_whole_labels_only(host):
    assert refusal(judge_name, host, 443, ALLOWED, tool="t") == "not_granted"


@pytest.mark.parametrize(("host", "port"), [("allowed.com", 443), ("allowed.com", 80), ("a.b.wide.example", 443)])
def test_what_is_granted_goes_through(host, port):
    assert judge_name(host, port, ALLOWED, tool="t") in ALLOWED


@pytest.mark.parametrize("port", [22, 25, 6379, 8080, 4222])
def test_a_port_that_is_not_granted_is_refused(port):
    assert refusal(judge_name, "allowed.com", port, ALLOWED, tool="t") == "not_granted"
    assert judge_name("allowed.com", port, (parse_grant(f"allowed.com:{port}"),), tool="t")


def test_a_refusal_names_the_missing_grant_and_the_line_that_gives_it():
    with pytest.raises(Refused) as refused:
        judge_name("api.example.com", 8443, ALLOWED, tool="crm.lookup")

    assert refused.value.message == "Tool 'crm.lookup' has no grant for api.example.com:8443."
    assert "`network.http:api.example.com:8443`" in refused.value.hint
    assert "af tool push" in refused.value.hint


@pytest.mark.parametrize("text", ["*.1.2.3.4", "*.", "**", "a b", "example.com:0", "example.com:70000", ""])
def test_a_grant_that_makes_no_sense_is_refused(text):
    with pytest.raises(Refused):
        parse_grant(text)


def test_a_grant_for_anywhere_still_keeps_to_the_usual_ports_and_public_addresses():
    anywhere = (parse_grant("*"),)

    assert judge_name("example.com", 443, anywhere, tool="t")
    assert refusal(judge_name, "example.com", 22, anywhere, tool="t") == "not_granted"
    assert refusal(judge_addresses, "example.com", 443, ["10.0.0.1"], Reach()) == "address_denied"


@pytest.mark.parametrize("name", ["metadata.google.internal", "metadata", "instance-data", "Metadata.Google.Internal."])
def test_a_metadata_name_is_refused_even_if_somebody_granted_it(name):
    host = parse_host(name)

    assert refusal(judge_name, host, 80, (Grant(host),), tool="t") == "metadata"


# One internal address in every spelling that some program, somewhere, understands.
ENCODINGS = [
    *("127.0.0.1", "127.1", "127.0.1", "127.000.000.001", "0177.0.0.1", "0x7f.0.0.1", "0x7f000001", "2130706433"),
    *("017700000001", "0x7f.1", "127.0.0.1.", "0", "0.0.0.0", "0x0", "00", "127.0.0.0x1", "0177.1", "0x7f.0x1"),
    *("[::1]", "[::]", "[0:0:0:0:0:0:0:1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::127.0.0.1]", "[::7f00:1]"),
    *("[64:ff9b::7f00:1]", "[64:ff9b::127.0.0.1]", "[64:ff9b:1::1]", "[2002:7f00:1::]", "[2002:7f00:1::1]"),
    *("[2001:0:7f00:1::]", "[fe80::1]", "[fc00::1]", "[fd00:ec2::254]", "[ff02::1]", "[0::ffff:a9fe:a9fe]"),
    *("169.254.169.254", "2852039166", "0xa9fea9fe", "0xa9.0xfe.0xa9.0xfe", "0251.0376.0251.0376", "169.254.43518"),
    *("169.16689662", "[::ffff:169.254.169.254]", "[::a9fe:a9fe]", "[64:ff9b::a9fe:a9fe]", "[2002:a9fe:a9fe::]"),
    *("100.100.100.200", "100.64.0.1", "10.0.0.5", "10.5", "012.0.0.5", "0xa.0.0.5", "167772165", "[::ffff:a00:5]"),
    *("172.16.0.1", "192.168.1.1", "192.168.257", "198.18.0.1", "192.0.2.1", "224.0.0.1", "240.0.0.1"),
    *("255.255.255.255", "192.88.99.1", "169.254.170.2", "[fec0::1]", "[100::1]", "[4000::1]", "[2001:db8::1]"),
]


def test_the_list_of_encodings_is_as_long_as_promised():
    assert len(set(ENCODINGS)) >= 60


@pytest.mark.parametrize("text", ENCODINGS)
def test_no_spelling_of_an_internal_address_passes_even_if_it_is_granted(text):
    def walk() -> None:
        host, port = parse_authority(text, 80)
        judge_name(host, port, (Grant(host),), tool="t")
        judge_addresses(host, port, [host], Reach())

    assert refusal(walk) in ("name_invalid", "address_denied", "metadata")


def test_one_internal_address_among_public_ones_spoils_the_name():
    public = judge_addresses("allowed.com", 443, ["93.184.216.34", "2606:2800:220:1::1"], Reach())

    assert len(public) == 2
    assert refusal(judge_addresses, "allowed.com", 443, ["93.184.216.34", "10.0.0.1"], Reach()) == "address_denied"
    assert refusal(judge_addresses, "allowed.com", 443, [], Reach()) == "unresolved"


def test_an_operator_may_open_an_internal_range_but_never_metadata_or_our_own_servers():
    own = ipaddress.ip_address("10.0.0.7")
    reach = Reach(
        private=tuple(ipaddress.ip_network(text) for text in ("10.0.0.0/8", "169.254.0.0/16", "fd00::/8")),
        own=frozenset({(own, 4222)}),
    )

    assert why_not(ipaddress.ip_address("10.0.0.5"), 4222, reach) is None
    assert why_not(own, 4222, reach) == "AgentFlow's own"
    assert why_not(own, 443, reach) is None
    for text in ("169.254.169.254", "fd00:ec2::254", "::ffff:169.254.169.254"):
        assert why_not(ipaddress.ip_address(text), 80, reach) == "a metadata service"
    assert why_not(ipaddress.ip_address("192.168.0.1"), 80, reach) == "internal"


@given(st.text(max_size=300))
def test_whatever_is_asked_for_the_answer_is_one_spelling_or_a_refusal(text):
    try:
        host = parse_host(text)
    except Refused:
        return
    assert parse_host(host) == host or ":" in host
    assert host == host.lower()
    assert not set(host) & set("\0\r\n\t @\\%/?#*")


@given(st.ip_addresses())
def test_nothing_but_global_unicast_is_reachable(address):
    if why_not(address, 443, Reach()) is None:
        assert address.is_global
        assert not address.is_multicast
        assert not address.is_private
        if address.version == 6:
            assert (address.ipv4_mapped, address.sixtofour, address.teredo) == (None, None, None)
