"""Fields and streams: sealed to their place, and opened by nothing but the right key."""

import os
from io import BytesIO

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentflow.encryption.field import Place, SealBroken, is_sealed, seal, sealed_prefix, unseal
from agentflow.encryption.keyring import InvalidKeys, KeyRing, UnknownKey, parse_keys, written_key
from agentflow.encryption.stream import CHUNK_BYTES, MAGIC, SealingWriter, UnsealingReader

ONE, TWO = bytes(range(32)), bytes(range(1, 33))
RING = KeyRing([("k1", ONE)])
PLACE = Place("acme", "event_store.event_data", "exec_1/1")


@given(st.binary(max_size=2_000))
def test_a_field_opens_to_what_was_sealed(plain: bytes) -> None:
    sealed = seal(RING, PLACE, plain)

    assert is_sealed(sealed)
    assert sealed.startswith(sealed_prefix("k1"))
    assert unseal(RING, PLACE, sealed) == plain


def test_the_same_field_never_looks_the_same_twice() -> None:
    assert seal(RING, PLACE, b"x") != seal(RING, PLACE, b"x")


@pytest.mark.parametrize(
    "other",
    [
        Place("other", "event_store.event_data", "exec_1/1"),
        Place("acme", "users.email", "exec_1/1"),
        Place("acme", "event_store.event_data", "exec_1/2"),
        Place("acme", "event_store.event_dat", "aexec_1/1"),
    ],
)
def test_a_field_moved_to_another_tenant_column_or_row_does_not_open(other: Place) -> None:
    with pytest.raises(SealBroken):
        unseal(RING, other, seal(RING, PLACE, b"secret"))


def test_a_changed_field_does_not_open() -> None:
    sealed = seal(RING, PLACE, b"secret")

    for broken in (sealed[:-4], sealed[:-4] + "AAAA", sealed.replace("af1:k1:", "af1:k1:!"), "af1:k1:", "af1:k1:AAAA"):
        with pytest.raises(SealBroken):
            unseal(RING, PLACE, broken)


def test_an_older_key_still_opens_and_one_that_is_gone_is_named() -> None:
    sealed = seal(RING, PLACE, b"secret")
    rotated = KeyRing([("k2", TWO), ("k1", ONE)])

    assert unseal(rotated, PLACE, sealed) == b"secret"
    assert seal(rotated, PLACE, b"x").startswith(sealed_prefix("k2"))
    with pytest.raises(UnknownKey, match="'k1'"):
        unseal(KeyRing([("k2", TWO)]), PLACE, sealed)
    with pytest.raises(SealBroken):
        unseal(KeyRing([("k1", TWO)]), PLACE, sealed)


def test_keys_are_read_from_lines_commas_and_comments() -> None:
    text = (
        f"# made today\n{written_key('k2', TWO)}  # current\n{written_key('k1', ONE)},{written_key('k0', bytes(32))}\n"
    )
    ring = parse_keys(text)

    assert ring.primary == "k2"
    assert unseal(ring, PLACE, seal(RING, PLACE, b"old")) == b"old"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "there is none"),
        ("# nothing", "there is none"),
        ("justakey", "entry 1 is not id:key"),
        (f"{written_key('k1', ONE)},k2:!!!", "entry 2 is not base64"),
        ("k1:c2hvcnQ=", "5 bytes instead of 32"),
        (f"{written_key('k1', ONE)} {written_key('k1', TWO)}", "same id"),
        (written_key("k" * 33, ONE), "32 letters"),
    ],
)
def test_keys_that_cannot_be_used_are_explained_without_showing_them(text: str, reason: str) -> None:
    with pytest.raises(InvalidKeys, match=reason) as caught:
        parse_keys(text)
    assert written_key("k1", ONE)[3:20] not in str(caught.value)


def test_a_ring_shows_ids_and_no_keys() -> None:
    assert repr(KeyRing([("k2", TWO), ("k1", ONE)])) == "KeyRing(k2, k1)"


def sealed_stream(plain: bytes, ring: KeyRing = RING, place: Place = PLACE) -> bytes:
    out = BytesIO()
    writer = SealingWriter(ring, place, out.write)
    for at in range(0, len(plain), 100_000):
        writer.write(plain[at : at + 100_000])
    writer.close()
    return out.getvalue()


def opened(sealed: bytes, ring: KeyRing = RING, place: Place = PLACE) -> bytes:
    source = BytesIO(sealed)
    assert source.read(4) == MAGIC
    reader = UnsealingReader(ring, place, source.read)
    plain = b""
    while chunk := reader.read(65_536):
        plain += chunk
    return plain


@pytest.mark.parametrize("size", [0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 3 * CHUNK_BYTES])
def test_a_stream_opens_to_what_was_sealed_at_every_chunk_border(size: int) -> None:
    plain = os.urandom(size)

    assert opened(sealed_stream(plain)) == plain


@settings(max_examples=25)
@given(st.data())
def test_chunks_cannot_be_dropped_doubled_swapped_or_cut(data: st.DataObject) -> None:
    whole = sealed_stream(os.urandom(4 * CHUNK_BYTES - 10))
    head = len(MAGIC) + 1 + 2 + 7
    step = CHUNK_BYTES + 16
    parts = [whole[at : at + step] for at in range(head, len(whole), step)]
    order = data.draw(
        st.lists(st.integers(0, len(parts) - 1), max_size=5).filter(lambda o: o != list(range(len(parts))))
    )

    with pytest.raises(SealBroken):
        opened(whole[:head] + b"".join(parts[number] for number in order))


def test_a_stream_is_sealed_to_its_place_and_key() -> None:
    sealed = sealed_stream(b"secret")

    with pytest.raises(SealBroken):
        opened(sealed, place=Place("other", PLACE.field, PLACE.row))
    with pytest.raises(UnknownKey):
        opened(sealed, ring=KeyRing([("k2", ONE)]))
    assert b"secret" not in sealed
