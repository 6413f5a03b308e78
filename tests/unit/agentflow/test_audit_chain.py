"""The audit chain as anybody can check it: every kind of tampering shows, and nothing else does."""

import random
from collections.abc import Callable, Sequence

import msgspec
import pytest

from agentflow.canonical import canonical
from agentflow.contracts.audit import (
    GENESIS,
    Actor,
    AuditRecord,
    Checkpoint,
    Link,
    Resource,
    chain_faults,
    checkpoint_text,
    entry_of,
    link_hash,
)
from agentflow.encryption.signing import is_signed, new_key_pair, sign
from agentflow.ids import TenantId

Change = Callable[[list[Link], random.Random], list[Link]]


def chained(count: int, *, tenant: str = "acme", first: int = 1) -> list[Link]:
    links: list[Link] = []
    before = GENESIS if first == 1 else b"\x07" * 32
    for seq in range(first, first + count):
        entry = entry_of(
            AuditRecord(
                id=f"aud_{seq}",
                tenant=TenantId(tenant),
                at_ms=1_700_000_000_000 + seq,
                actor=Actor("person", "usr_1"),
                action="executions.cancel",
                resource=Resource("execution", f"exec_{seq}"),
                outcome="done",
                details={"note": "ünïcode", "share": 0.5},
            )
        )
        hashed = link_hash(before, entry.record.encode(), seq)
        links.append(Link(seq, before.hex(), hashed.hex(), msgspec.json.decode(entry.record)))
        before = hashed
    return links


def checkpoint_of(links: Sequence[Link]) -> Checkpoint:
    pair = new_key_pair()
    size, head, at = links[-1].seq, links[-1].hash, "2026-11-18T00:00:00Z"
    signature, key = sign(pair.private_pem, checkpoint_text(tenant="acme", size=size, head=head, at=at))
    return Checkpoint("acme", size, head, at, key, signature)


def made_anew(links: Sequence[Link]) -> list[Link]:
    """What somebody with the database would write to hide what they did: every hash right again."""
    again: list[Link] = []
    before = GENESIS
    for seq, link in enumerate(links, start=1):
        hashed = link_hash(before, canonical(link.record), seq)
        again.append(Link(seq, before.hex(), hashed.hex(), link.record))
        before = hashed
    return again


def changed(links: list[Link], chance: random.Random) -> list[Link]:
    at = chance.randrange(len(links))
    record = {**links[at].record, "action": "executions.pause"}
    return [*links[:at], msgspec.structs.replace(links[at], record=record), *links[at + 1 :]]


def removed(links: list[Link], chance: random.Random) -> list[Link]:
    at = chance.randrange(1, len(links) - 1)
    return links[:at] + links[at + 1 :]


def swapped(links: list[Link], chance: random.Random) -> list[Link]:
    at = chance.randrange(len(links) - 1)
    return [*links[:at], links[at + 1], links[at], *links[at + 2 :]]


def put_in(links: list[Link], chance: random.Random) -> list[Link]:
    at = chance.randrange(1, len(links))
    return [*links[:at], links[chance.randrange(len(links))], *links[at:]]


def cut_off(links: list[Link], chance: random.Random) -> list[Link]:
    return links[: chance.randrange(1, len(links))]


def changed_and_made_anew(links: list[Link], chance: random.Random) -> list[Link]:
    return made_anew(changed(links, chance))


def removed_and_made_anew(links: list[Link], chance: random.Random) -> list[Link]:
    return made_anew(removed(links, chance))


def cut_off_and_grown_again(links: list[Link], chance: random.Random) -> list[Link]:
    return made_anew([*cut_off(links, chance), *chained(len(links))])[: len(links) + 5]


def anothers(links: list[Link], chance: random.Random) -> list[Link]:
    return made_anew([*links[:-1], chained(1, tenant="other")[0]])


TAMPERING: list[Change] = [
    changed, removed, swapped, put_in, cut_off, changed_and_made_anew, removed_and_made_anew, cut_off_and_grown_again,
    anothers,
]  # fmt: skip


@pytest.mark.parametrize("tamper", TAMPERING, ids=lambda tamper: tamper.__name__)
def test_every_change_of_a_chain_shows_against_its_checkpoint(tamper: Change) -> None:
    chance = random.Random(20)
    links = chained(40)
    kept = checkpoint_of(links)
    for _ in range(100):
        assert list(chain_faults(tamper(list(links), chance), [kept])), tamper.__name__


def test_an_untouched_chain_has_no_faults_and_may_have_grown_since_or_begin_late() -> None:
    links = chained(40)

    assert list(chain_faults(links, [checkpoint_of(links), checkpoint_of(links[:7])])) == []
    assert list(chain_faults(links[10:], [checkpoint_of(links), checkpoint_of(links[:7])])) == []  # retention
    assert list(chain_faults([])) == []


def test_a_record_whose_own_hash_was_made_anew_does_not_fit_the_next_one() -> None:
    links = chained(5)
    record = {**links[2].record, "action": "nothing.at.all"}
    hashed = link_hash(bytes.fromhex(links[2].prev_hash), canonical(record), 3).hex()
    links[2] = msgspec.structs.replace(links[2], record=record, hash=hashed)

    assert [fault.seq for fault in chain_faults(links)] == [4]  # without any checkpoint


def test_a_first_record_that_follows_something_is_not_the_first() -> None:
    late = [msgspec.structs.replace(link, seq=link.seq - 4) for link in chained(3, first=5)]

    assert any("the first" in fault.reason for fault in chain_faults(late))


def test_a_hash_is_over_the_canonical_json_of_the_link() -> None:
    link = chained(1)[0]
    text = canonical({"prev_hash": link.prev_hash, "record": link.record, "seq": 1})

    assert link_hash(GENESIS, canonical(link.record), 1).hex() == link.hash
    assert b'{"prev_hash":"' + b"0" * 64 in text
    assert text == b'{"prev_hash":"%b","record":%b,"seq":1}' % (b"0" * 64, canonical(link.record))


def test_a_checkpoint_can_be_neither_changed_nor_signed_by_another() -> None:
    kept = checkpoint_of(chained(3))
    text = checkpoint_text(tenant=kept.tenant, size=kept.size, head=kept.head, at=kept.at)
    longer = checkpoint_text(tenant=kept.tenant, size=kept.size + 1, head=kept.head, at=kept.at)

    assert is_signed(kept.key, text, kept.signature)
    assert not is_signed(kept.key, longer, kept.signature)
    assert not is_signed(new_key_pair().public_jwk, text, kept.signature)
    assert not is_signed(kept.key, text, "nonsense!")
