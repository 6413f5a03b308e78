"""What was done by whom, as a record; and the chain that shows when somebody changes it later. Pure.

A record is written once, as RFC 8785 text. Its link in the tenant's chain hashes that text together with its number and
the hash before it, so a link cannot be changed, left out, moved or put in without all after it changing. That the end
was cut off shows only against a checkpoint kept elsewhere: a signed statement of how long the chain was, and its hash.
"""

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any, Literal

import msgspec

from agentflow.canonical import canonical
from agentflow.clock import rfc3339
from agentflow.ids import TenantId

ActorKind = Literal["person", "service", "worker"]
# `allowed` and `closed` are the egress proxy's; whatever changed nothing because it was refused is `denied`.
Outcome = Literal["done", "failed", "denied", "allowed", "closed"]

GENESIS = bytes(32)  # the hash before the first link
_CHECKPOINT = b"agentflow audit checkpoint v1\n"  # so that the signature can stand for nothing else


class Actor(msgspec.Struct, frozen=True):
    kind: ActorKind
    id: str  # of the person, service account or worker; names are for the directory to tell, and to forget


class Resource(msgspec.Struct, frozen=True):
    type: str
    id: str


class AuditRecord(msgspec.Struct, frozen=True):
    id: str
    tenant: TenantId
    at_ms: int
    actor: Actor
    action: str  # noun and verb, such as `executions.cancel`
    resource: Resource
    outcome: Outcome
    details: dict[str, Any] = {}


class AuditEntry(msgspec.Struct):
    """A record on its way into the database; `written` once some transaction has taken it along."""

    id: str
    tenant: TenantId
    record: str
    written: bool = False


def entry_of(record: AuditRecord) -> AuditEntry:
    plain = msgspec.to_builtins(record)
    plain["at"] = rfc3339(plain.pop("at_ms"))
    return AuditEntry(record.id, record.tenant, canonical(plain).decode())


class Link(msgspec.Struct, frozen=True):
    """One record in its place, as it is listed and exported."""

    seq: int
    prev_hash: str
    hash: str
    record: dict[str, Any]


def link_hash(prev_hash: bytes, record: bytes, seq: int) -> bytes:
    """SHA-256 over the canonical form of `{prev_hash, record, seq}`; `record` is canonical already."""
    return hashlib.sha256(b'{"prev_hash":"%b","record":%b,"seq":%d}' % (prev_hash.hex().encode(), record, seq)).digest()


class Checkpoint(msgspec.Struct, frozen=True):
    """How long a tenant's chain is, and where it ends, signed by the control plane (Ed25519)."""

    tenant: str
    size: int
    head: str
    at: str
    key: dict[str, str]  # the public half, as a JWK
    signature: str


def checkpoint_text(*, tenant: str, size: int, head: str, at: str) -> bytes:
    """What the signature is over."""
    return _CHECKPOINT + canonical({"tenant": tenant, "size": size, "head": head, "at": at})


class Fault(msgspec.Struct, frozen=True):
    seq: int
    reason: str


def chain_faults(links: Iterable[Link], checkpoints: Iterable[Checkpoint] = ()) -> Iterator[Fault]:
    """Everything that is wrong with a chain, in its order. It may begin late: retention removes its oldest part.

    Each checkpoint must be met: its size reached, with its hash there. Signatures are the caller's to check.
    """
    anchors = {each.size: each for each in checkpoints}
    before: Link | None = None
    tenant: str | None = None
    for link in links:
        if before is None:
            tenant = link.record.get("tenant")
            if link.seq == 1 and link.prev_hash != GENESIS.hex():
                yield Fault(link.seq, "it is the first, and follows something")
        elif link.seq != before.seq + 1:
            yield Fault(link.seq, f"it follows number {before.seq}: something was removed, put in or moved")
        elif link.prev_hash != before.hash:
            yield Fault(link.seq, f"it does not follow the number {before.seq} that stands before it")
        if link.record.get("tenant") != tenant:
            yield Fault(link.seq, f"it is of the tenant {link.record.get('tenant')}, in the chain of {tenant}")
        if not _is_hash(link):
            yield Fault(link.seq, "it is not what was recorded: its hash is another one")
        anchor = anchors.pop(link.seq, None)
        if anchor is not None and anchor.head != link.hash:
            yield Fault(link.seq, f"a checkpoint of {anchor.at} has another hash for it")
        before = link
    reached = 0 if before is None else before.seq
    for anchor in anchors.values():
        if anchor.size > reached:  # a smaller one is of a part that retention has removed since
            yield Fault(reached, f"the end is missing: a checkpoint of {anchor.at} knows {anchor.size} records")


def _is_hash(link: Link) -> bool:
    try:
        return link_hash(bytes.fromhex(link.prev_hash), canonical(link.record), link.seq).hex() == link.hash
    except ValueError:
        return False
