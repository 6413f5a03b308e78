"""The containers' hardening, to the letter: whoever changes it changes this page too, and is asked why."""

import pytest

from sandbox.backends.docker import hardening
from sandbox.backends.gvisor import oci_bundle
from sandbox.backends.layout import Layout, Mount
from sandbox.backends.seccomp import DENIED, UnknownArchitecture, filter_program
from sandbox.policy import MIB, ToolNeeds, compile_profile

PROFILE = compile_profile(ToolNeeds("t"), backend="docker", isolation="full", folder="/srv")


def test_a_container_gets_exactly_this():
    room = "rw,nosuid,nodev,noexec,size=134217728,nr_inodes=16384,uid=7,gid=7,mode=0700"

    assert hardening(PROFILE, [Mount("/srv/tool", "/srv/tool"), Mount("/w", "/workspace", True)], user=7) == {
        "Binds": ["/srv/tool:/srv/tool:ro", "/w:/workspace:rw"],
        "CapDrop": ["ALL"],
        "IpcMode": "none",
        "LogConfig": {"Type": "none", "Config": {}},
        "Memory": (256 + 128 + 32) * MIB,
        "MemorySwap": (256 + 128 + 32) * MIB,
        "NanoCpus": 1_000_000_000,
        "NetworkMode": "none",
        "PidsLimit": 68,
        "Privileged": False,
        "ReadonlyRootfs": True,
        "SecurityOpt": ["no-new-privileges"],
        "Tmpfs": {"/sandbox": room, "/tmp": room},
        "Ulimits": [
            {"Name": "core", "Soft": 0, "Hard": 0},
            {"Name": "fsize", "Soft": 64 * MIB, "Hard": 64 * MIB},
            {"Name": "nofile", "Soft": 256, "Hard": 256},
        ],
    }


def test_a_gvisor_bundle_has_no_capability_no_privilege_and_a_read_only_root():
    bundle = oci_bundle(["python3"], Layout((Mount("/usr", "/usr"),)), PROFILE, user=7)

    assert bundle["root"] == {"path": "rootfs", "readonly": True}
    assert bundle["process"]["user"] == {"uid": 7, "gid": 7}
    assert bundle["process"]["capabilities"] == {}
    assert bundle["process"]["noNewPrivileges"] is True
    assert bundle["process"]["env"] == []
    assert {kind["type"] for kind in bundle["linux"]["namespaces"]} == {"pid", "network", "ipc", "uts", "mount"}
    assert {"destination": "/usr", "type": "bind", "source": "/usr", "options": ["rbind", "ro"]} in bundle["mounts"]


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_filter_names_every_denied_call_of_the_machine(machine):
    column = ["x86_64", "aarch64"].index(machine)
    program = filter_program(machine)
    compared = {
        int.from_bytes(program[at + 4 : at + 8], "little") for at in range(0, len(program), 8) if program[at] == 0x15
    }

    assert {numbers[column] for numbers in DENIED.values()} - {None} <= compared
    assert len(program) // 8 < 4096


def test_an_unknown_machine_has_no_filter_and_says_so():
    with pytest.raises(UnknownArchitecture):
        filter_program("riscv64")
