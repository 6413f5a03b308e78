"""`af doctor` on this machine: what it says about a sandbox was tried, not assumed."""

import json
import subprocess
import sys

from tests.sandboxes.conftest import require


def test_doctor_tries_the_backends_and_refuses_one_that_does_not_stand(tmp_path):
    environment = {"AF_DOCKER_HOST": f"unix://{tmp_path}/none.sock", "AF_SANDBOX": "docker", "PATH": "/nowhere"}
    tried = subprocess.run(
        [sys.executable, "-c", "from agentflow.cli.main import main; main()", "doctor", "--json"],
        env=environment, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip

    found = {finding["backend"]: finding for finding in json.loads(tried.stdout)}

    assert tried.returncode == 2, "the one that was chosen does not stand"
    assert list(found) == ["process", "docker", "gvisor", "wasm"]
    assert not found["docker"]["stands"]
    assert not found["gvisor"]["stands"]
    assert "runsc" in found["gvisor"]["reason"]
    assert found["wasm"]["stands"]
    assert found["process"]["stands"]
    if found["process"]["isolation"] == "full":
        assert found["process"]["reached"] == []


def test_doctor_proves_that_names_lead_to_the_proxy_and_that_a_workspace_comes_back(tmp_path):
    require("bwrap", "runsc")
    tried = subprocess.run(
        [sys.executable, "-m", "sandbox", "--json", "process", "gvisor"],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip

    for found in json.loads(tried.stdout):
        assert found["proofs"] == {"names": "holds", "checkpoint": "holds"}, found


def test_doctor_starts_a_tools_image_under_each_runtime_and_says_what_it_lacks(dockerd, image):
    require("runsc")
    absent = f"sha256:{'0' * 64}"
    tried = subprocess.run(
        [
            *(sys.executable, "-m", "sandbox", "--json", "--docker-host", dockerd.url, "--image", image),
            *("--tool-image", image, "--tool-image", absent, "docker", "gvisor"),
        ],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip

    for found in json.loads(tried.stdout):
        assert (found["proofs"]["names"], found["proofs"]["checkpoint"]) == ("holds", "holds"), found
        # This image names no command of its own, and the other does not exist: both are told, not guessed.
        assert "command" in found["proofs"][image]
        assert "o such image" in found["proofs"][absent]
