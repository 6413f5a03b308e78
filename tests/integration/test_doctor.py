"""`af doctor` on this machine: what it says about a sandbox was tried, not assumed."""

import json
import subprocess
import sys


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
