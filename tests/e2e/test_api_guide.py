"""The sessions in docs/guides/api.md, executed as they stand there."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "guides" / "api.md").read_text()


def session(title):
    """The commands below a heading, up to the next one."""
    part = GUIDE.split(f"## {title}\n")[1].split("\n## ")[0]
    return re.findall(r"```bash\n(.*?)```", part, re.DOTALL)


@pytest.mark.skipif(not (shutil.which("curl") and shutil.which("jq")), reason="needs apt-get install -y curl jq")
def test_the_sessions_of_the_guide_do_what_it_says(platform, tmp_path):
    ready = next(line for line in platform.control_plane.log.read_text().splitlines() if "control_plane.ready" in line)
    stand_in = f'grpcurl() {{ "{sys.executable}" "{ROOT}/tests/e2e/grpcurl.py" "$@"; }}'
    commands = [*session("A session with curl"), *session("A session with grpcurl")]
    assert len(commands) > 8
    environment = {
        "PATH": "/usr/bin:/bin",
        "AF_API_URL": platform.api_url,
        "AF_API_KEY": platform.api_key,
        "AF_GRPC": json.loads(ready)["grpc"],
        "no_proxy": "*",
    }

    done = subprocess.run(
        ["bash", "-euxo", "pipefail", "-c", "\n".join([stand_in, *commands])],
        check=False, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr[-3000:] + done.stdout[-1000:]
