"""Every fence is needed: with one of them taken away its probe gets through, so the probes would notice its loss.

And what matters most is held twice: for these, each fence alone may go and the probe still fails.
"""

import os
import shutil

import msgspec
import pytest

from sandbox.backends.cgroup import find_cgroups
from sandbox.backends.docker import DockerSandbox, open_docker_sandbox
from sandbox.backends.gvisor import GvisorSandbox
from sandbox.backends.process import ProcessSandbox
from sandbox.backends.wasm import WasmSandbox
from sandbox.tool_call import WasmModule
from tests.sandboxes import wasm_probes
from tests.sandboxes.conftest import call_of, profile_for, require
from tests.sandboxes.test_conformance import bait

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="needs root: other users have fewer fences to lose")


async def through(sandbox, folder, given, *probes: str) -> set[str]:
    outcome = await sandbox.run(
        call_of("probes:run", folder, given | {"only": probes}), profile_for(sandbox, folder, timeout_s=60)
    )
    assert outcome.fault is None, (outcome.fault, outcome.logs)
    return {probe for probe, seen in outcome.output.items() if seen["reached"]}


def process(*without: str) -> ProcessSandbox:
    require("bwrap")
    return ProcessSandbox(isolation="full", bubblewrap=shutil.which("bwrap"), cgroups=find_cgroups(), without=without)


@needs_root
@pytest.mark.parametrize(
    ("without", "probe"),
    [
        (("network",), "connect_worker_port"),
        (("network",), "abstract_socket"),
        (("pid", "landlock"), "see_worker"),
        (
            ("uts", "seccomp", "user", "capabilities"),
            None,
        ),  # the host name stays safe: bubblewrap drops the right to it
        (("seccomp", "user"), "ptrace_parent"),  # one who changed users cannot be traced either
        (("seccomp", "landlock"), "new_user_namespace"),
        (("seccomp",), "personality"),
        (("user",), "being_root"),
        (("mount", "landlock", "user"), "read_shadow"),
        (("mount", "landlock", "user"), "read_host_secret"),
        (("mount", "landlock", "user"), "read_docker_socket"),
    ],
    ids=str,
)
async def test_a_process_without_this_fence_lets_the_probe_through(without, probe, folder, tmp_path):
    async with bait(tmp_path) as given:
        if probe is None:
            assert await through(process(*without), folder, given, "set_host_name") == set()
            return
        assert await through(process(), folder, given, probe) == set()
        assert await through(process(*without), folder, given, probe) == {probe}


@needs_root
@pytest.mark.parametrize("lost", ["mount", "landlock", "user", "pid", "network", "seccomp"])
async def test_what_matters_most_is_held_by_more_than_one_fence(lost, folder, tmp_path):
    held = {
        "read_shadow": {"mount", "landlock", "user", "pid", "network", "seccomp"},
        "read_host_secret": {"landlock", "pid", "network", "seccomp"},
        "signal_worker": {"mount", "landlock", "user", "network", "seccomp", "pid"},
        "read_memory_of_parent": {"mount", "landlock", "user", "pid", "network"},
    }
    async with bait(tmp_path) as given:
        wanted = [probe for probe, losses in held.items() if lost in losses]
        # Another user could not even start here without a file system of its own: the interpreter is the worker's.
        gone = (lost, "user") if lost == "mount" else (lost,)
        assert await through(process(*gone), folder, given, *wanted) == set()


@pytest.mark.parametrize(
    ("change", "probe"),
    [
        ({"NetworkMode": "host"}, "connect_worker_port"),
        ({"PidMode": "host"}, "see_worker"),
        ({"ReadonlyRootfs": False, "User": "0:0", "CapDrop": [], "SecurityOpt": []}, "write_root"),
        ({"User": "0:0"}, "being_root"),
        ({"CapDrop": [], "User": "0:0", "SecurityOpt": []}, "capabilities"),
        (
            {"CapAdd": ["SYS_ADMIN"], "CapDrop": [], "User": "0:0", "SecurityOpt": ["seccomp=unconfined"]},
            "set_host_name",
        ),
        ({"Binds": ["/:/host:ro"], "User": "0:0"}, None),
    ],
    ids=lambda value: "+".join(value) if isinstance(value, dict) else str(value),
)
async def test_a_container_without_this_part_of_its_hardening_lets_the_probe_through(
    change, probe, dockerd, image, folder, tmp_path, opened
):
    async with opened("docker") as whole, bait(tmp_path, "docker") as given:

        def loosened(config):
            if "Binds" in change:
                config["Binds"] += change["Binds"]
                config["User"] = change["User"]
            else:
                config.update(change)

        loose = DockerSandbox(
            (await open_docker_sandbox(whole._options))._client, msgspec.structs.replace(whole._options, idle_max=0),
            loosened=loosened,
        )  # fmt: skip
        loose._fences = ("rlimits",)
        try:
            if probe is None:
                probe, given = "read_host_secret", given | {"secret": f"/host{given['secret']}"}
            assert await through(whole, folder, given, probe) == set()
            assert await through(loose, folder, given, probe) == {probe}
        finally:
            await loose.close()


async def test_only_our_filter_keeps_a_containers_processes_from_tracing_each_other(opened, image, folder, tmp_path):
    async with opened("docker", idle_max=0) as sandbox, bait(tmp_path, "docker") as given:
        assert await through(sandbox, folder, given, "ptrace_parent") == set()
        sandbox._fences = ("no_new_privileges", "rlimits")
        assert await through(sandbox, folder, given, "ptrace_parent") == {"ptrace_parent"}


@needs_root
@pytest.mark.parametrize(
    ("layer", "probe"),
    [
        ("network", "connect_worker_port"),
        ("user", "being_root"),
        ("capabilities", "capabilities"),
        ("mount", "read_host_secret"),
    ],
)
async def test_gvisor_without_this_part_of_its_bundle_lets_the_probe_through(layer, probe, folder, tmp_path):
    require("runsc")

    def loosened(bundle, flags):
        match layer:
            case "network":
                flags[flags.index("--network=none")] = "--network=host"
                bundle["linux"]["namespaces"] = [
                    kind for kind in bundle["linux"]["namespaces"] if kind["type"] != "network"
                ]
            case "user":
                bundle["process"]["user"] = {"uid": 0, "gid": 0}
            case "capabilities":
                held = ["CAP_CHOWN"]
                bundle["process"]["user"] = {"uid": 0, "gid": 0}
                bundle["process"]["capabilities"] = dict.fromkeys(
                    ("bounding", "effective", "inheritable", "permitted", "ambient"), held
                )
            case "mount":
                private = str(tmp_path / "private")
                bundle["mounts"].append(
                    {"destination": private, "type": "bind", "source": private, "options": ["rbind", "ro"]}
                )

    sandboxes = [
        GvisorSandbox(shutil.which("runsc"), cgroups=find_cgroups(), idle_max=0, loosened=loose)
        for loose in (None, loosened)
    ]
    async with bait(tmp_path) as given:
        assert await through(sandboxes[0], folder, given, probe) == set()
        assert await through(sandboxes[1], folder, given, probe) == {probe}
    for sandbox in sandboxes:
        await sandbox.close()


_LOOPS = """(module (memory (export "memory") 1) (func (export "alloc") (param i32) (result i32) (i32.const 0))
  (func (export "run") (param i32 i32) (result i64) (local $n i64)
    (loop $again (local.set $n (i64.add (local.get $n) (i64.const 1)))
      (br_if $again (i64.lt_u (local.get $n) (i64.const {times}))))
    (i64.const 0)))"""
_GROWS = """(module (memory (export "memory") 1) (func (export "alloc") (param i32) (result i32) (i32.const 0))
  (func (export "run") (param i32 i32) (result i64)
    (if (i32.eq (memory.grow (i32.const 4000)) (i32.const -1)) (then unreachable)) (i64.const 0)))"""


@pytest.mark.parametrize("layer", ["deadline", "memory", "imports", "preopens"])
async def test_wasm_without_this_fence_lets_the_attempt_through(layer, tmp_path):
    import wasmtime

    file = tmp_path / "attempt.wasm"
    match layer:
        case "deadline":
            file.write_bytes(wasmtime.wat2wasm(_LOOPS.format(times=8_000_000_000)))
            needs, held = {"timeout_s": 0.2}, "tool_timeout"
        case "memory":
            file.write_bytes(wasmtime.wat2wasm(_GROWS))
            needs, held = {"memory_bytes": 1 << 20}, "tool_crashed"
        case "imports":
            file.write_bytes(wasm_probes.module("inherited_environment", paths={}))
            needs, held = {"environment": {"A": "1"}}, "import_denied"
        case "preopens":
            (tmp_path / "secret").write_text("s3cret")
            file.write_bytes(wasm_probes.module("secret", paths={"secret": str(tmp_path / "secret")}))
            needs, held = {"permissions": ("wasi.*", "fs.read:nowhere")}, "refused"
            (tmp_path / "nowhere").mkdir()

    async def attempted(sandbox: WasmSandbox):
        outcome = await sandbox.run(call_of(WasmModule(str(file)), tmp_path), profile_for(sandbox, tmp_path, **needs))
        await sandbox.close()
        return outcome

    fenced, loose = await attempted(WasmSandbox()), await attempted(WasmSandbox(without=frozenset({layer})))

    assert (fenced.fault.code if fenced.fault else fenced.output) == held
    if layer == "deadline":
        assert loose.duration_s > 4 * 0.2, "it ran to its end, whatever the deadline"
    else:
        assert loose.fault is None or loose.fault.code == "tool_output_invalid"
        assert loose.output in (None, "reached")
