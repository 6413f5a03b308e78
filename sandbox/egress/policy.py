"""May this call talk to that host? Names, ports and addresses, decided in one place for every way in. Pure.

Called by `ways` before a name is looked up (`judge_name`) and by `upstream` before a connection is made
(`judge_addresses`). Default deny: an empty list allows nothing, and what cannot be read with certainty is refused.
"""

import ipaddress
import re
from collections.abc import Sequence
from typing import TypeAlias

import msgspec

IPAddress: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
IPNetwork: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

PORTS_DEFAULT = (80, 443)
ANYWHERE = "*"
_HOST_CHARS_MAX = 253
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
# What a resolver of the C library takes for an IPv4 address: `127.1`, `0x7f000001`, `017700000001`, `2130706433`.
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_QUAD = re.compile(r"(0|[1-9][0-9]{0,2})(\.(0|[1-9][0-9]{0,2})){3}")

# Names under which clouds hand out credentials, whatever address they have.
_METADATA_NAMES = frozenset({"metadata", "metadata.google.internal", "metadata.goog", "instance-data"})
_METADATA_ADDRESSES = frozenset(
    ipaddress.ip_address(text) for text in ("169.254.169.254", "169.254.170.2", "fd00:ec2::254", "100.100.100.200")
)
# Ranges that carry another address inside, or that `is_global` is too kind to.
_TUNNELS = tuple(
    ipaddress.ip_network(text)
    for text in ("::/96", "::ffff:0:0/96", "64:ff9b::/96", "64:ff9b:1::/48", "2001::/32", "2002::/16", "192.88.99.0/24")
)
_GLOBAL_V6 = ipaddress.ip_network("2000::/3")


class Refused(Exception):
    """Why something does not go through. `code` is for programs, the hint says how to be let through."""

    def __init__(self, code: str, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint


class Grant(msgspec.Struct, frozen=True):
    """One line of an allow-list: a name, `*.` and a name for everything below it, or `*` for every public host."""

    host: str
    ports: tuple[int, ...] = PORTS_DEFAULT

    def covers(self, host: str, port: int) -> bool:
        if port not in self.ports:
            return False
        if self.host == ANYWHERE:
            return True
        if self.host.startswith("*."):
            return host.endswith(self.host[1:]) and len(host) > len(self.host) - 1
        return host == self.host


class Reach(msgspec.Struct, frozen=True):
    """Which internal addresses a deployment opens to tools that are granted their names, and which it never does."""

    private: tuple[IPNetwork, ...] = ()
    own: frozenset[tuple[IPAddress, int]] = frozenset()  # AgentFlow's own servers, by address and port


def parse_host(text: str) -> str:
    """The one spelling of a host, or `Refused`. Never repaired: a name read in two ways is a name to refuse."""
    if not text or len(text) > _HOST_CHARS_MAX + 1:
        raise Refused("name_invalid", "The host name is empty or too long.")
    if not text.isascii():
        raise Refused("name_invalid", "The host name is not ASCII.", "Write international names in their xn-- form.")
    if text.startswith("[") and text.endswith("]"):
        return _address(text[1:-1])
    name = text.lower().removesuffix(".")
    if ":" in name:
        return _address(name)
    labels = name.split(".")
    if _NUMBER.fullmatch(labels[-1]):
        return _address(name)
    if len(name) > _HOST_CHARS_MAX or not all(_LABEL.fullmatch(label) for label in labels):
        raise Refused("name_invalid", f"{_shown(text)} is not a host name.")
    return name


def parse_port(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,5}", text) or not 1 <= int(text) <= 65_535:
        raise Refused("port_invalid", f"{_shown(text)} is not a port.")
    return int(text)


def parse_authority(text: str, default_port: int | None) -> tuple[str, int]:
    """`host:port`, `[v6]:port`, or without a port where there is a default."""
    host, colon, port = text.rpartition(":")
    if not colon or (text.startswith("[") and text.endswith("]")):
        host, port = text, ""
    if not port and default_port is None:
        raise Refused("port_invalid", "The destination has no port.")
    return parse_host(host), parse_port(port) if port else default_port or 0


def parse_grant(text: str) -> Grant:
    """`api.example.com`, `*.example.com`, `api.example.com:8443`, `*`: the scopes of `network.http` permissions."""
    if text == ANYWHERE:
        return Grant(ANYWHERE)
    star, rest = ("*.", text[2:]) if text.startswith("*.") else ("", text)
    host, colon, port = rest.rpartition(":")
    if not colon or rest.endswith("]"):
        host, port = rest, ""
    host = parse_host(host)
    if star and _as_address(host) is not None:
        raise Refused("grant_invalid", f"There is nothing below {_shown(host)}.", "Write `*.` and a domain.")
    return Grant(star + host, (parse_port(port),) if port else PORTS_DEFAULT)


def judge_name(host: str, port: int, grants: Sequence[Grant], *, tool: str) -> Grant:
    """The grant that lets `host` (from `parse_host`) through, before anything is asked of a name server."""
    if host in _METADATA_NAMES:
        raise Refused("metadata", f"{host} hands out a machine's credentials; it is never reachable from a tool.")
    for grant in grants:
        if grant.covers(host, port):
            return grant
    line = f"network.http:{host}" if port in PORTS_DEFAULT else f"network.http:{host}:{port}"
    raise Refused(
        "not_granted",
        f"Tool {tool!r} has no grant for {host}:{port}.",
        f"If it should have one: `af tool allow {tool} {line}` writes the change for review, then `af tool push FILE` "
        f"(built in, or of the agents file: add `{line}` to its `permissions` there).",
    )


def judge_addresses(host: str, port: int, addresses: Sequence[str], reach: Reach) -> tuple[IPAddress, ...]:
    """All of them, if every single one may be reached: one bad address among good ones is an attack."""
    if not addresses:
        raise Refused("unresolved", f"{host} has no address.")
    found = tuple(ipaddress.ip_address(text) for text in addresses)
    for address in found:
        reason = why_not(address, port, reach)
        if reason is not None:
            raise Refused(
                "address_denied",
                f"{host} leads to {address}, which is {reason}.",
                "An operator may open internal ranges to granted names with AF_EGRESS_PRIVATE.",
            )
    return found


def why_not(address: IPAddress, port: int, reach: Reach) -> str | None:
    """What is wrong with an address; None where a tool may reach it."""
    if address in _METADATA_ADDRESSES or (address.version == 6 and _inner(address) in _METADATA_ADDRESSES):
        return "a metadata service"
    if (address, port) in reach.own:
        return "AgentFlow's own"
    if address.version == 6 and address.scope_id is not None:
        return "scoped to an interface"
    if any(address in network for network in reach.private if network.version == address.version):
        return None
    if any(address in network for network in _TUNNELS if network.version == address.version):
        return "a form that hides another address"
    if address.is_multicast:
        return "a multicast address"
    if not address.is_global or (address.version == 6 and address not in _GLOBAL_V6):
        return "internal"
    return None


def _inner(address: ipaddress.IPv6Address) -> IPAddress | None:
    return address.ipv4_mapped or address.sixtofour or ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)


def _address(text: str) -> str:
    if "%" in text:
        raise Refused("name_invalid", "An address with a zone is not taken.")
    if ":" not in text and not _QUAD.fullmatch(text):
        raise Refused("name_invalid", f"{_shown(text)} is an address in disguise.", "Write four decimal numbers.")
    address = _as_address(text)
    if address is None:
        raise Refused("name_invalid", f"{_shown(text)} is not an address.")
    return str(address)


def _as_address(text: str) -> IPAddress | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def _shown(text: str) -> str:
    return ascii(text[:80])
