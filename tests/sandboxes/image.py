"""An image for tests, made of this machine's files: its Python with the libraries it needs, a shell, a few programs."""

import io
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import docker

PROGRAMS = ("/bin/sh", "/bin/cat", "/bin/ls", "/usr/bin/id", "/bin/echo", "/usr/bin/yes", "/bin/sleep")
SETUID = "/usr/local/bin/setuid-id"  # a copy of `id` that belongs to root and is set-user-id
_LEFT_OUT = {"site-packages", "test", "idlelib", "tkinter", "ensurepip", "lib2to3", "turtledemo", "distutils"}


def import_image(client: docker.APIClient) -> str:
    """The id of the image, which is its digest."""
    answer = client.import_image_from_data(_archive(), repository="agentflow-test")
    found = re.search(r"sha256:[0-9a-f]{64}", answer)
    assert found, answer
    return found[0]


def _archive() -> bytes:
    packed = io.BytesIO()
    base = Path(sys.base_prefix)
    python = Path(sys.executable).resolve()
    library = base / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    binaries = [python, *map(Path, PROGRAMS), *(library / "lib-dynload").glob("*.so")]
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for folder in ("tmp", "sandbox", "workspace", "proc", "sys", "dev", "run", "etc"):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(entry)
        for path in sorted(path for path in {*binaries, *_libraries(binaries)} if library not in path.parents):
            archive.add(path.resolve(), str(path).lstrip("/"))
        archive.add(library, str(library).lstrip("/"), filter=_needed)
        link = tarfile.TarInfo("usr/local/bin/python3")
        link.type, link.linkname = tarfile.SYMTYPE, str(python)
        archive.addfile(link)
        entry = archive.gettarinfo(str(Path("/usr/bin/id").resolve()), SETUID.lstrip("/"))
        entry.mode, entry.uid, entry.gid = 0o4755, 0, 0
        with Path("/usr/bin/id").open("rb") as content:
            archive.addfile(entry, content)
        shadow = tarfile.TarInfo("etc/shadow")
        shadow.mode, shadow.size = 0o600, 4
        archive.addfile(shadow, io.BytesIO(b"root"))
    return packed.getvalue()


def _needed(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if _LEFT_OUT & set(Path(entry.name).parts) else entry


def _libraries(binaries: list[Path]) -> set[Path]:
    listed = subprocess.run(["ldd", *binaries], capture_output=True, text=True, check=False).stdout
    return {Path(path) for path in re.findall(r"(/[^\s:]+\.so[^\s:]*)(?= \()", listed)}
