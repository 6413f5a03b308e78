"""A workspace is full of what an untrusted tool left there: nothing in it leads anybody outside."""

import os
import socket
from pathlib import Path

import pytest

from sandbox.workspace import UnsafeArtefact, digest, diverged, entries, read_file


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (tmp_path / "secret").write_text("s3cret")
    folder = tmp_path / "workspace"
    (folder / "out").mkdir(parents=True)
    (folder / "out" / "report.txt").write_text("fine")
    return folder


def test_a_regular_file_below_is_taken_out(workspace):
    assert read_file(str(workspace), "out/report.txt", bytes_max=100) == b"fine"


def plant(workspace: Path, what: str) -> str:
    """One hostile thing, and the name by which somebody would ask for it."""
    outside = workspace.parent / "secret"
    at = workspace / "out" / "x"
    match what:
        case "climbing name" | "name that climbs inside" | "absolute name" | "empty part" | "dot part" | "zero byte":
            return {
                "climbing name": "../secret",
                "name that climbs inside": "out/../../secret",
                "absolute name": str(outside),
                "empty part": "out//report.txt",
                "dot part": "./out/report.txt",
                "zero byte": "out/report.txt\0.png",
            }[what]
        case "link to a file outside":
            at.symlink_to(outside)
        case "link to a file inside":
            at.symlink_to(workspace / "out" / "report.txt")
        case "relative link outside":
            at.symlink_to("../../secret")
        case "link to a folder outside":
            at.symlink_to(workspace.parent)
            return "out/x/secret"
        case "folder replaced by a link":
            (workspace / "out" / "report.txt").unlink()
            (workspace / "out").rmdir()
            (workspace / "out").symlink_to(workspace.parent)
            return "out/secret"
        case "second name of a file outside":
            at.hardlink_to(outside)
        case "pipe":
            os.mkfifo(at)
        case "socket":
            with socket.socket(socket.AF_UNIX) as listening:
                listening.bind(str(at))
        case "folder":
            at.mkdir()
        case "dangling link":
            at.symlink_to("/nowhere")
        case "link to itself":
            at.symlink_to(at)
        case "device by link":
            at.symlink_to("/dev/zero")
        case "process file by link":
            at.symlink_to("/proc/self/environ")
        case "sparse giant":
            with at.open("wb") as file:
                file.truncate(1 << 40)
        case "missing":
            pass
    return "out/x"


@pytest.mark.parametrize(
    "what",
    [
        *("climbing name", "name that climbs inside", "absolute name", "empty part", "dot part", "zero byte"),
        *("link to a file outside", "link to a file inside", "relative link outside", "link to a folder outside"),
        *("folder replaced by a link", "second name of a file outside", "pipe", "socket", "folder", "dangling link"),
        *("link to itself", "device by link", "process file by link", "sparse giant", "missing"),
    ],
)
def test_nothing_hostile_is_taken_out(workspace, what):
    name = plant(workspace, what)

    with pytest.raises(UnsafeArtefact) as caught:
        read_file(str(workspace), name, bytes_max=1000)

    assert caught.value.code == "AF1413"


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


@pytest.mark.parametrize("loss", ["a file changed", "a folder dropped", "a file added", "all of it gone"])
def test_a_workspace_that_is_not_what_the_last_step_left_stops_the_next_one(workspace, loss):
    left = digest(str(workspace))
    assert diverged(str(workspace), left) is None

    if loss == "a file changed":
        (workspace / "out" / "report.txt").write_text("Fine")
    elif loss == "a file added":
        (workspace / "new").write_text("")
    else:
        (workspace / "out" / "report.txt").unlink()
        (workspace / "out").rmdir()
        if loss == "all of it gone":
            workspace.rmdir()

    fault = diverged(str(workspace), left)
    assert fault is not None
    assert (fault.code, fault.retryable) == ("workspace_diverged", False)


def test_a_tree_without_end_is_refused(workspace):
    deep = workspace
    for _ in range(70):
        deep = deep / "d"
        deep.mkdir()

    with pytest.raises(UnsafeArtefact, match="deeper"):
        digest(str(workspace))
