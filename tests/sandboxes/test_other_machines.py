"""What this machine is not: a worker that is no root, control groups of version 2; as far as they can be had here."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox.backends.cgroup import Cgroup, Cgroups, find_cgroups
from sandbox.policy import MIB, ToolNeeds, compile_profile
from tests.sandboxes.conftest import require

CHECKOUT = Path(__file__).parents[2]
PROFILE = compile_profile(ToolNeeds("t", cpus=0.5), backend="process", isolation="full", folder="/")
_NOBODY = "65534"


def opened_up(needed: list[str]) -> str:
    """A script that shows `needed` to everybody in a mount namespace of its own, whatever closed folder it lies in."""
    tops = {path: Path("/", Path(path).parts[1]) for path in needed}
    closed = {top for top in tops.values() if not top.stat().st_mode & 0o001}
    kept = [path for path in needed if tops[path] in closed]
    lines = ["set -e", "spare=$(mktemp -d)"]
    lines += [f'mkdir "$spare/{n}" && mount --rbind "{path}" "$spare/{n}"' for n, path in enumerate(kept)]
    lines += [f'mount -t tmpfs -o mode=755 none "{top}"' for top in sorted(closed)]
    lines += [f'mkdir -p "{path}" && mount --rbind "$spare/{n}" "{path}"' for n, path in enumerate(kept)]
    lines.append(f'exec setpriv --reuid {_NOBODY} --regid {_NOBODY} --clear-groups -- "$@"')
    return "\n".join(lines)


def as_nobody(*argv: str) -> subprocess.CompletedProcess:
    require("bwrap")
    if shutil.which("setpriv") is None or shutil.which("unshare") is None:
        pytest.skip("left out: a worker that is no root; needs apt-get install -y util-linux")
    needed = list(dict.fromkeys((str(Path(sys.base_prefix).resolve()), sys.base_prefix, sys.prefix, str(CHECKOUT))))
    command = ["unshare", "--mount", "sh", "-c", opened_up(needed), "sh", sys.executable, *argv]
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "PYTHONPATH": str(CHECKOUT), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, env=environment, cwd="/")


def test_a_worker_that_is_no_root_fences_its_tools_in_a_user_namespace():
    able = as_nobody("-c", "import os, sandbox; print(os.getuid())")
    if able.returncode != 0 or able.stdout.strip() != _NOBODY:
        pytest.skip(f"left out: nobody cannot run this interpreter here ({able.stderr.strip()[-200:]})")

    tried = as_nobody("-m", "sandbox", "--json", "process", "wasm")

    process, wasm = json.loads(tried.stdout)
    assert wasm["stands"], wasm
    assert process["stands"], process
    if process["isolation"] != "full":
        pytest.skip("left out: this kernel gives user namespaces to root only")
    assert process["reached"] == []
    assert {"user_namespace", "mount", "network", "pid", "seccomp", "no_new_privileges"} <= {*process["layers"]}
    assert "user" not in process["layers"], "only root can be somebody else"
    assert process["proofs"]["checkpoint"] == "holds"


def version_2(home: Path) -> Cgroups:
    return Cgroups(2, dict.fromkeys(("memory", "pids", "cpu"), home))


def test_version_2_bounds_memory_swap_processes_and_cpu_in_one_folder(tmp_path):
    group = version_2(tmp_path).create(PROFILE, spare_bytes=MIB, spare_processes=3)

    (folder,) = tmp_path.iterdir()
    said = {file.name: file.read_text() for file in folder.iterdir()}
    memory = PROFILE.memory_bytes + PROFILE.disk_bytes + MIB
    assert said == {
        "memory.max": str(memory),
        "memory.swap.max": "0",
        "pids.max": str(PROFILE.processes_max + 3),
        "cpu.max": "50000 100000",
    }
    assert group.joining(["tool"])[-2:] == [str(folder / "cgroup.procs"), "tool"]


def test_version_2_counts_what_the_bounds_stopped(tmp_path):
    group = Cgroup(2, dict.fromkeys(("memory", "pids", "cpu"), tmp_path))
    assert not group.ran_out_of_memory()
    (tmp_path / "memory.events").write_text("low 0\nmax 12\noom 1\noom_kill 1\n")
    (tmp_path / "pids.events").write_text("max 3\n")

    assert group.ran_out_of_memory()
    assert group.ran_out_of_processes()


def test_version_2_is_found_where_there_is_no_version_1(tmp_path):
    home = tmp_path / "cgroup" / "worker.slice"
    home.mkdir(parents=True)
    own, mounts = tmp_path / "own", tmp_path / "mounts"
    own.write_text("0::/worker.slice\n")
    mounts.write_text(f"31 24 0:27 / {tmp_path / 'cgroup'} rw,relatime - cgroup2 cgroup2 rw\n")

    # Only a folder, so the group that is tried out cannot be removed again with what was written into it.
    assert find_cgroups(own, mounts) is None
    assert (home / "cgroup.subtree_control").read_text() == "+memory +pids +cpu"
    assert [folder.name.startswith("agentflow-") for folder in home.iterdir() if folder.is_dir()] == [True]


@pytest.fixture
def unified() -> Path:
    """A group of version 2 on this very kernel. It may lack controllers; killing needs none."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        if after.startswith("cgroup2 "):
            folder = Path(before.split(" ")[4]) / f"agentflow-test-{os.getpid()}"
            try:
                folder.mkdir()
            except OSError as error:
                pytest.skip(f"left out: no group of version 2 can be made here ({error.strerror})")
            return folder
    pytest.skip("left out: no control groups of version 2 on this machine")


async def test_version_2_kills_everything_in_the_group_at_once_and_leaves_nothing(unified):
    group = Cgroup(2, dict.fromkeys(("memory", "pids", "cpu"), unified))
    script = "setsid sh -c 'trap \"\" TERM; sleep 300' & (sleep 300 &) ; sleep 300"
    started = await asyncio.create_subprocess_exec(*group.joining(["/bin/sh", "-c", script]))
    while len(group.members()) < 4:  # noqa: ASYNC110 - the kernel does not tell when
        await asyncio.sleep(0.01)

    await group.end()
    await started.wait()

    assert group.members() == []
    assert not unified.exists()
