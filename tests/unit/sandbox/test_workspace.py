"""A workspace holds what an untrusted tool left, an archive claims what it likes: nothing of it leads outside."""

import io
import os
import shutil
import socket
import stat
import tarfile
from pathlib import Path

import pytest

from sandbox.workspace import UnsafeArtefact, changes, digest, entries, look, pack, unpack, usage

SECRET = b"s3cret-of-the-host"


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (tmp_path / "secret").write_bytes(SECRET)
    folder = tmp_path / "workspace"
    (folder / "out").mkdir(parents=True)
    (folder / "out" / "report.txt").write_text("fine")
    return folder


def packed(workspace: Path, **bounds) -> io.BytesIO:
    archive = io.BytesIO()
    pack(str(workspace), archive, **bounds)
    archive.seek(0)
    return archive


def test_what_is_kept_comes_back_the_same_elsewhere(workspace, tmp_path):
    (workspace / "run.sh").write_text("#!/bin/sh")
    (workspace / "run.sh").chmod(0o755)
    (workspace / "out" / "again.txt").hardlink_to(workspace / "out" / "report.txt")  # both names are inside
    (workspace / "link").symlink_to("out/report.txt")
    (workspace / "ümlaut").mkdir()
    (tmp_path / "other").mkdir()

    unpack(packed(workspace), str(tmp_path / "other"))

    assert digest(str(tmp_path / "other")) == digest(str(workspace))
    assert (tmp_path / "other" / "run.sh").stat().st_mode & stat.S_IXUSR
    assert (tmp_path / "other" / "link").readlink() == Path("out/report.txt")


# Left in the workspace by a tool: refused as a whole, or kept as what it is and never as what it points to.
REFUSED, HARMLESS = "refused", "harmless"


def plant(workspace: Path, what: str) -> str:
    outside, at = workspace.parent / "secret", workspace / "out" / "x"
    match what:
        case "link to a file outside":
            at.symlink_to(outside)
        case "relative link outside":
            at.symlink_to("../../secret")
        case "link to a folder outside":
            at.symlink_to(workspace.parent)
        case "folder replaced by a link":
            (workspace / "out" / "report.txt").unlink()
            (workspace / "out").rmdir()
            (workspace / "out").symlink_to(workspace.parent)
        case "dangling link":
            at.symlink_to("/nowhere")
        case "link to itself":
            at.symlink_to(at)
        case "device by link":
            at.symlink_to("/dev/zero")
        case "process file by link":
            at.symlink_to("/proc/self/environ")
        case "second name of a file outside":
            at.hardlink_to(outside)
            return REFUSED
        case "pipe":
            os.mkfifo(at)
        case "socket":
            with socket.socket(socket.AF_UNIX) as listening:
                listening.bind(str(at))
        case "device":
            if os.getuid() != 0:
                pytest.skip("only root can make a device")
            os.mknod(at, stat.S_IFCHR | 0o666, os.makedev(1, 5))
        case "set-user-id program":
            at.write_text("x")
            at.chmod(0o6755)
        case "sparse giant":
            with at.open("wb") as file:
                file.truncate(1 << 40)
            return REFUSED
        case "tree without end":
            deep = workspace
            for _ in range(70):
                deep = deep / "d"
                deep.mkdir()
            return REFUSED
        case "name that is no text":
            Path(os.fsdecode(os.fsencode(workspace) + b"/\xff")).touch()
            return REFUSED
        case "name with a line end":
            (workspace / "a\nb").write_text("x")
        case "name like an option":
            (workspace / "--checkpoint-action=exec=sh").write_text("x")
    return HARMLESS


PLANTED = [
    *("link to a file outside", "relative link outside", "link to a folder outside", "folder replaced by a link"),
    *("dangling link", "link to itself", "device by link", "process file by link", "second name of a file outside"),
    *("pipe", "socket", "device", "set-user-id program", "sparse giant", "tree without end", "name that is no text"),
    *("name with a line end", "name like an option"),
]


@pytest.mark.parametrize("what", PLANTED)
def test_whatever_a_tool_leaves_nothing_of_the_host_is_taken_out(workspace, tmp_path, what):
    (tmp_path / "other").mkdir()
    before = (tmp_path / "secret").read_bytes()
    if plant(workspace, what) == REFUSED:
        for taking_out in (packed, lambda folder: digest(str(folder))):
            with pytest.raises(UnsafeArtefact) as refused:
                taking_out(workspace)
            assert refused.value.code == "AF1413"
        return

    archive = packed(workspace)

    assert SECRET not in archive.getvalue()
    unpack(archive, str(tmp_path / "other"))
    kinds = {stat.S_IFMT(path.lstat().st_mode) for path in (tmp_path / "other").rglob("*")}
    assert kinds <= {stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK}
    assert not any(path.lstat().st_mode & 0o6000 for path in (tmp_path / "other").rglob("*"))
    assert digest(str(tmp_path / "other")) == digest(str(workspace))
    assert (tmp_path / "secret").read_bytes() == before


def member(name: str, kind: bytes = tarfile.REGTYPE, content: bytes = b"", link: str = "") -> tuple:
    entry = tarfile.TarInfo(name)
    entry.type, entry.size, entry.linkname, entry.mode = kind, len(content), link, 0o777
    return entry, io.BytesIO(content)


def hostile(what: str, outside: Path) -> list[tuple]:
    return {
        "climbing name": [member("../planted", content=b"owned")],
        "name that climbs inside": [member("a", tarfile.DIRTYPE), member("a/../../planted", content=b"owned")],
        "absolute name": [member(f"{outside}-planted", content=b"owned")],
        "empty part": [member("a", tarfile.DIRTYPE), member("a//b", content=b"x")],
        "dot part": [member("./a", content=b"x")],
        "only dots": [member("..", tarfile.DIRTYPE)],
        "written through a link": [member("l", tarfile.SYMTYPE, link=".."), member("l/planted", content=b"owned")],
        "written through a chain of links": [
            member("a", tarfile.SYMTYPE, link="b"),
            member("b", tarfile.SYMTYPE, link=".."),
            member("a/planted", content=b"owned"),
        ],
        "file in place of a link": [
            member("l", tarfile.SYMTYPE, link=str(outside)),
            member("l", content=b"owned"),
        ],
        "second name of a file outside": [member("h", tarfile.LNKTYPE, link=str(outside))],
        "device": [member("d", tarfile.CHRTYPE)],
        "pipe": [member("p", tarfile.FIFOTYPE)],
        "same name twice": [member("a", content=b"1"), member("a", content=b"2")],
        "below a file": [member("a", content=b"1"), member("a/b", content=b"2")],
        "too deep": [member("/".join("d" * 70), content=b"x")],
        "bomb": [member(f"f{n}", content=b"0" * 1024) for n in range(64)],
    }[what]


HOSTILE = [
    *("climbing name", "name that climbs inside", "absolute name", "empty part", "dot part", "only dots"),
    *("written through a link", "written through a chain of links", "file in place of a link"),
    *("second name of a file outside", "device", "pipe", "same name twice", "below a file", "too deep", "bomb"),
]


def test_there_are_as_many_malicious_trees_as_promised():
    assert len({*PLANTED}) + len({*HOSTILE}) >= 30


@pytest.mark.parametrize("what", HOSTILE)
def test_no_archive_writes_outside_of_its_folder(tmp_path, what):
    outside = tmp_path / "secret"
    outside.write_bytes(SECRET)
    (tmp_path / "folder").mkdir()
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as made:
        for entry, content in hostile(what, outside):
            made.addfile(entry, content)
    archive.seek(0)

    with pytest.raises(UnsafeArtefact) as caught:
        unpack(archive, str(tmp_path / "folder"), bytes_max=32 * 1024)

    assert caught.value.code == "AF1413"
    assert outside.read_bytes() == SECRET
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "secret"]


def test_what_is_no_archive_is_refused(tmp_path):
    with pytest.raises(UnsafeArtefact, match="cannot be read"):
        unpack(io.BytesIO(b"PK\x03\x04 not a tar"), str(tmp_path))


def test_the_digest_is_that_of_the_content_and_follows_no_link(workspace):
    (workspace / "link").symlink_to(workspace.parent / "secret")
    before = digest(str(workspace))

    (workspace.parent / "secret").write_text("another")

    assert digest(str(workspace)) == before
    assert [(entry.path, entry.kind) for entry in entries(str(workspace))] == [
        ("link", "link"),
        ("out", "folder"),
        ("out/report.txt", "file"),
    ]
    (workspace / "out" / "report.txt").write_text("Fine")
    assert digest(str(workspace)) != before


def test_usage_counts_what_is_on_disk_and_not_what_is_claimed(workspace):
    with (workspace / "sparse").open("wb") as file:
        file.truncate(1 << 30)
    (workspace / "full").write_bytes(os.urandom(300_000))

    assert 300_000 <= usage(str(workspace)) < 1_000_000


def changed_into(before: Path, after: Path, target: Path) -> int:
    """Make `after` of a copy of `before` by what differs alone; how many bytes of content that took."""
    shutil.copytree(before, target, symlinks=True)
    found = changes(look(str(before)), look(str(after)))
    archive = io.BytesIO()
    pack(str(after), archive, only=found.new)
    archive.seek(0)
    unpack(archive, str(target), gone=found.gone, over=True)
    return found.bytes


def test_a_sheet_makes_one_version_of_another_whatever_was_changed(tmp_path):
    before, after = tmp_path / "before", tmp_path / "after"
    for name in ("kept", "gone/deep", "was_folder", "was_file_below"):
        (before / name).mkdir(parents=True)
    for name in ("kept/a", "gone/deep/b", "was_folder/c", "file", "replaced", "becomes_link", "runs"):
        (before / name).write_text(f"before {name}")
    (before / "link").symlink_to("file")
    (before / "log").write_bytes(b"x" * 100_000)
    shutil.copytree(before, after, symlinks=True)
    shutil.rmtree(after / "gone")
    shutil.rmtree(after / "was_folder")
    (after / "was_folder").write_text("a file now")
    (after / "file").unlink()
    (after / "file").mkdir()
    (after / "file" / "inside").write_text("of what was a file")
    (after / "replaced").write_text("after")
    (after / "becomes_link").unlink()
    (after / "becomes_link").symlink_to("kept/a")
    (after / "link").unlink()
    (after / "link").symlink_to("kept")
    (after / "runs").chmod(0o755)
    with (after / "log").open("ab") as log:
        log.write(b"one line more")

    took = changed_into(before, after, tmp_path / "made")

    assert digest(str(tmp_path / "made")) == digest(str(after))
    assert (tmp_path / "made" / "runs").stat().st_mode & stat.S_IXUSR
    assert took < 10_000, "of a file that grew, its end is taken"
    assert not changes(look(str(after)), look(str(tmp_path / "made")))


@pytest.mark.parametrize("size", [0, 1, 8_191, 8_192, 8_193, 20_000, 30_000])
def test_a_file_that_was_cut_or_written_over_is_the_same_again(tmp_path, size):
    before, after = tmp_path / "before", tmp_path / "after"
    for folder, content in ((before, b"a" * 20_000), (after, b"a" * min(size, 10_000) + b"b" * max(0, size - 10_000))):
        folder.mkdir()
        (folder / "data").write_bytes(content)

    changed_into(before, after, tmp_path / "made")

    assert (tmp_path / "made" / "data").read_bytes() == (after / "data").read_bytes()


@pytest.mark.parametrize("gone", ["../secret", "/etc/passwd", "link/secret", "a/../../secret", ""])
def test_what_a_sheet_says_is_gone_is_never_removed_outside(workspace, tmp_path, gone):
    (workspace / "link").symlink_to(tmp_path)
    archive = packed(tmp_path / "workspace" / "out")

    with pytest.raises(UnsafeArtefact):
        unpack(archive, str(workspace), gone=[gone], over=True)

    assert (tmp_path / "secret").read_bytes() == SECRET


def test_a_sheet_goes_on_from_what_is_there_and_never_through_a_link(workspace, tmp_path):
    (workspace / "log").symlink_to(tmp_path / "secret")
    member = tarfile.TarInfo("log")
    member.size, member.pax_headers = 1, {"AGENTFLOW.from": "1"}
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w", format=tarfile.PAX_FORMAT) as made:
        made.addfile(member, io.BytesIO(b"x"))
    archive.seek(0)

    with pytest.raises(UnsafeArtefact):
        unpack(archive, str(workspace), over=True)

    assert (tmp_path / "secret").read_bytes() == SECRET
