"""`shell.run`: a command or a script, with its exit code and what it wrote. The sandbox ends what it leaves behind."""

import os
import subprocess
from typing import Any

_KEPT_BYTES_MAX = 128 * 1024


def run(input: dict[str, Any]) -> dict[str, Any]:
    if ("argv" in input) == ("script" in input):
        raise ValueError("Give `argv` or `script`, one of them.")
    command = input["argv"] if "argv" in input else ["/bin/sh", "-c", input["script"]]
    given = os.environ  # noqa: TID251 - what was granted, and nothing else
    ended = subprocess.run(
        command,
        input=input.get("stdin", "").encode(),
        capture_output=True,
        check=False,
        timeout=input.get("timeout_s"),
        cwd=given["AGENTFLOW_WORKSPACE"] if input.get("in_workspace") else None,
        env={"PATH": "/usr/local/bin:/usr/bin:/bin", **given},
    )
    return {"exit_code": ended.returncode, "stdout": _text(ended.stdout), "stderr": _text(ended.stderr)}


def _text(raw: bytes) -> str:
    return raw[:_KEPT_BYTES_MAX].decode(errors="replace")
