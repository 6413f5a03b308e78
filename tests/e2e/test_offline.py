"""No network, no key, no account: everything runs on a machine that reaches nothing but itself."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from agentflow.settings import inherited_environment

AF = Path(sys.executable).with_name("af")


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare") or not shutil.which("ip"), reason="needs root")
def test_the_demo_runs_whole_where_there_is_no_network_at_all(tmp_path):
    """In a network namespace whose only device is the loopback; nothing of the environment but a path is handed on."""
    environment = {name: value for name, value in inherited_environment().items() if name in ("PATH", "PYTHONPATH")}
    alone = 'ip link set lo up && ! ip route get 192.0.2.1 2>/dev/null && exec "$0" demo support'
    ran = subprocess.run(
        ["unshare", "--net", "sh", "-c", alone, str(AF)],
        cwd=tmp_path,
        env={**environment, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.count("completed") >= 3
