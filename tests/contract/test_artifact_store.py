"""What every artifact store promises (`agentflow.ports.ArtifactStore`), in a folder and a bucket, plain and sealed."""

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator, Iterator
from io import BytesIO
from pathlib import Path
from urllib.parse import quote

import pytest
import zstandard

from agentflow.artifacts.keeper import Keeper
from agentflow.artifacts.opening import open_keeper
from agentflow.artifacts.store import KeptArtifacts
from agentflow.contracts.artifact import ArtifactRef
from agentflow.encryption.keyring import KeyRing
from agentflow.ports import (
    ArtifactDamaged,
    ArtifactLost,
    ArtifactStore,
    ArtifactsUnavailable,
    InvalidArtifactName,
    Shelf,
    ShelfUse,
)

OURS, THEIRS = Shelf("acme", "exec_1"), Shelf("other", "exec_1")
RING = KeyRing([("k1", bytes(range(32)))])
CONTENT = b"a value that compresses well. " * 20_000


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    try:
        yield f"http://{host}:{port}"
    finally:
        server.stop()


@pytest.fixture(params=["folder", "s3"])
def url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "folder":
        return f"file://{tmp_path}/artifacts"
    import boto3

    for name, value in {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}.items():
        monkeypatch.setenv(name, value)
    endpoint = request.getfixturevalue("s3_endpoint")
    bucket = f"b-{hashlib.sha256(str(tmp_path).encode()).hexdigest()[:16]}"
    boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1").create_bucket(Bucket=bucket)
    return f"s3://{bucket}/under/here?endpoint={quote(endpoint, safe='')}&region=us-east-1"


@pytest.fixture
def keeper(url: str) -> Keeper:
    return open_keeper(url)


@pytest.fixture(params=[None, RING], ids=["plain", "sealed"])
def ring(request: pytest.FixtureRequest) -> KeyRing | None:
    return request.param


@pytest.fixture
def store(keeper: Keeper, ring: KeyRing | None) -> ArtifactStore:
    return KeptArtifacts(keeper, ring)


def overwrite(keeper: Keeper, shelf: Shelf, ref: ArtifactRef, blob: bytes) -> None:
    with keeper.spool() as spool:
        spool.write(blob)
        keeper.keep(spool, f"{shelf.tenant}/{shelf.owner}/{ref.sha256}.zst")


def raw(keeper: Keeper, shelf: Shelf, ref: ArtifactRef) -> bytes:
    blob = keeper.read(f"{shelf.tenant}/{shelf.owner}/{ref.sha256}.zst")
    try:
        return blob.read()
    finally:
        blob.close()


async def chunks(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


@pytest.mark.parametrize("content", [b"", b"x", CONTENT, os.urandom(3_000_000)], ids=["empty", "byte", "text", "noise"])
async def test_what_was_put_comes_back_whole_and_in_chunks(store: ArtifactStore, content: bytes) -> None:
    ref = await store.put(OURS, content)

    assert ref == ArtifactRef(hashlib.sha256(content).hexdigest(), len(content))
    assert await store.get(OURS, ref) == content
    assert b"".join([chunk async for chunk in store.stream(OURS, ref)]) == content


async def test_a_stream_is_the_same_artifact_as_its_bytes(store: ArtifactStore) -> None:
    whole = await store.put(OURS, CONTENT)
    streamed = await store.put(OURS, chunks(CONTENT[:7], CONTENT[7:300_000], b"", CONTENT[300_000:]))

    assert streamed == whole
    assert [use.artifacts for use in await store.shelves()] == [1]


async def test_a_stream_is_never_held_whole(store: ArtifactStore) -> None:
    """The source counts what was taken and not yet given back as garbage: a few chunks at most are alive."""
    alive = 0

    class Chunk(bytes):
        def __del__(self) -> None:
            nonlocal alive
            alive -= 1

    async def source() -> AsyncIterator[bytes]:
        nonlocal alive
        for number in range(50):
            alive += 1
            assert alive <= 8
            yield Chunk(bytes([number]) * 200_000)

    ref = await store.put(OURS, source())

    assert ref.bytes == 10_000_000
    sizes = [len(chunk) async for chunk in store.stream(OURS, ref)]
    assert sum(sizes) == 10_000_000
    assert max(sizes) <= 1024 * 1024


async def test_identical_content_is_kept_once_and_compressed(store: ArtifactStore) -> None:
    refs = await asyncio.gather(*(store.put(OURS, CONTENT) for _ in range(8)))

    (use,) = await store.shelves()
    assert set(refs) == {refs[0]}
    assert (use.shelf, use.artifacts) == (OURS, 1)
    assert use.bytes < len(CONTENT) / 100


async def test_what_was_never_put_is_told_as_lost(store: ArtifactStore) -> None:
    unknown = ArtifactRef("0" * 64, 10)

    with pytest.raises(ArtifactLost, match="exec_1"):
        await store.get(OURS, unknown)
    with pytest.raises(ArtifactLost):
        [chunk async for chunk in store.stream(OURS, unknown)]


async def test_one_tenant_cannot_reach_the_artifacts_of_another_by_hash(store: ArtifactStore) -> None:
    ref = await store.put(OURS, CONTENT)

    with pytest.raises(ArtifactLost):
        await store.get(THEIRS, ref)
    await store.put(THEIRS, CONTENT)
    assert [use.shelf for use in await store.shelves("acme")] == [OURS]
    assert [use.shelf for use in await store.shelves()] == [OURS, THEIRS]


async def test_dropping_a_shelf_removes_all_of_it_and_nothing_else(store: ArtifactStore) -> None:
    similar = Shelf("acme", "exec_10")  # a name that begins like the dropped one
    ref = await store.put(OURS, CONTENT)
    await store.put(OURS, b"another")
    for shelf in (THEIRS, similar):
        await store.put(shelf, CONTENT)

    freed = await store.drop(OURS)

    assert freed > 0
    assert [use.shelf for use in await store.shelves()] == [similar, THEIRS]
    with pytest.raises(ArtifactLost):
        await store.get(OURS, ref)
    assert await store.drop(OURS) == 0


@pytest.mark.parametrize("part", ["", ".", "..", "../acme", "a/b", "a\\b", ".spool", "a\0b", "ä", "x" * 129, "a\n"])
async def test_names_that_could_lead_elsewhere_are_refused(store: ArtifactStore, part: str) -> None:
    for shelf in (Shelf(part, "exec_1"), Shelf("acme", part)):
        for use in (store.put(shelf, b"x"), store.get(shelf, ArtifactRef("0" * 64, 1)), store.drop(shelf)):
            with pytest.raises(InvalidArtifactName):
                await use


@pytest.mark.parametrize("sha256", ["", "../" * 20 + "etc/passwd", "0" * 63, "G" * 64, "0" * 64 + "\n"])
async def test_a_hash_that_is_none_is_refused(store: ArtifactStore, sha256: str) -> None:
    with pytest.raises(InvalidArtifactName):
        await store.get(OURS, ArtifactRef(sha256, 1))


async def test_a_torn_blob_is_told_as_damaged(store: ArtifactStore, keeper: Keeper) -> None:
    ref = await store.put(OURS, os.urandom(2_000_000))
    blob = raw(keeper, OURS, ref)

    for length in (0, 1, 4, 20, len(blob) // 2, len(blob) - 1):
        overwrite(keeper, OURS, ref, blob[:length])
        with pytest.raises(ArtifactDamaged):
            await store.get(OURS, ref)


async def test_a_rotten_bit_is_told_as_damaged(store: ArtifactStore, keeper: Keeper) -> None:
    content = os.urandom(600_000)
    ref = await store.put(OURS, content)
    blob = raw(keeper, OURS, ref)

    for at in range(14, len(blob), len(blob) // 7):  # before that a rotten key id reads as an unknown key
        overwrite(keeper, OURS, ref, blob[:at] + bytes([blob[at] ^ 1]) + blob[at + 1 :])
        with pytest.raises(ArtifactDamaged):
            await store.get(OURS, ref)


async def test_a_blob_in_the_place_of_another_is_told_as_damaged(store: ArtifactStore, keeper: Keeper) -> None:
    one, two = await store.put(OURS, b"first" * 100), await store.put(OURS, b"other" * 100)
    overwrite(keeper, OURS, one, raw(keeper, OURS, two))

    with pytest.raises(ArtifactDamaged):
        await store.get(OURS, one)


async def test_a_blob_that_expands_beyond_its_size_is_stopped_early(store: ArtifactStore, keeper: Keeper) -> None:
    ref = await store.put(OURS, b"small")
    compressing = zstandard.ZstdCompressor(level=19)
    bomb = compressing.compress(bytes(300_000_000))  # 300 MB in a few KB
    overwrite(keeper, OURS, ref, bomb)

    with pytest.raises(ArtifactDamaged, match="more than it should"):
        await store.get(OURS, ref)

    window = zstandard.ZstdCompressionParameters(window_log=27, compression_level=1)
    overwrite(keeper, OURS, ref, zstandard.ZstdCompressor(compression_params=window).compressobj().compress(b"") or b"")
    with pytest.raises(ArtifactDamaged):
        await store.get(OURS, ref)


async def test_a_store_that_is_away_says_so(url: str, tmp_path: Path) -> None:
    if url.startswith("file"):
        (tmp_path / "a-file").write_text("in the way")
        broken = f"file://{tmp_path}/a-file/artifacts"
    else:
        broken = url.replace("s3://b-", "s3://no-such-")

    with pytest.raises(ArtifactsUnavailable):
        open_keeper(broken)


async def test_blobs_written_before_there_were_keys_are_still_read_and_can_be_sealed(keeper: Keeper) -> None:
    ref = await KeptArtifacts(keeper).put(OURS, CONTENT)
    other = await KeptArtifacts(keeper).put(THEIRS, CONTENT)
    sealed = KeptArtifacts(keeper, RING)

    assert await sealed.get(OURS, ref) == CONTENT
    assert await sealed.reseal(OURS) == 1
    assert await sealed.reseal(OURS) == 0
    assert await sealed.get(OURS, ref) == CONTENT
    with pytest.raises(ArtifactDamaged, match="encrypted"):
        await KeptArtifacts(keeper).get(OURS, ref)
    assert await KeptArtifacts(keeper).get(THEIRS, other) == CONTENT


async def test_rotation_seals_anew_and_the_old_key_is_needed_no_more(keeper: Keeper) -> None:
    new = ("k2", bytes(32))
    ref = await KeptArtifacts(keeper, RING).put(OURS, CONTENT)

    assert await KeptArtifacts(keeper, KeyRing([new, ("k1", bytes(range(32)))])).reseal(OURS) == 1
    assert await KeptArtifacts(keeper, KeyRing([new])).get(OURS, ref) == CONTENT


async def test_a_sealed_blob_of_one_tenant_does_not_open_for_another(keeper: Keeper) -> None:
    store = KeptArtifacts(keeper, RING)
    ref = await store.put(OURS, CONTENT)
    overwrite(keeper, THEIRS, ref, raw(keeper, OURS, ref))

    with pytest.raises(ArtifactDamaged):
        await store.get(THEIRS, ref)
    assert b"compresses" not in zstandard_free(raw(keeper, OURS, ref))


def zstandard_free(blob: bytes) -> bytes:
    try:
        return zstandard.ZstdDecompressor().stream_reader(BytesIO(blob)).read()
    except zstandard.ZstdError:
        return blob


async def test_what_others_put_beside_is_neither_counted_nor_touched(store: ArtifactStore, keeper: Keeper) -> None:
    with keeper.spool() as spool:
        spool.write(b"a note")
        keeper.keep(spool, "acme/readme.txt")

    assert await store.shelves() == []
    assert isinstance(ShelfUse(OURS, 0, 0, 0), ShelfUse)
    assert [kept.name for kept in keeper.names()] == ["acme/readme.txt"]


async def test_a_folder_forgets_what_was_spooled_and_never_kept(tmp_path: Path) -> None:
    folder = open_keeper(f"file://{tmp_path}/artifacts")
    spool = folder.spool()
    spool.write(b"half")
    spool.close()
    old = tmp_path / "artifacts" / ".spool" / "left.part"
    old.write_bytes(b"from a killed process")
    os.utime(old, (0, 0))

    open_keeper(f"file://{tmp_path}/artifacts")

    assert list((tmp_path / "artifacts" / ".spool").iterdir()) == []
