"""Writes the hashed lock files from pyproject.toml, or checks that they still answer it.

`make lock` resolves; `make check` runs this with --check: resolve again, preferring what is locked, and
compare. Lock files never name a registry: where packages come from is the business of the machine.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
LOCKS: dict[str, list[str]] = {
    "worker.txt": ["pyproject.toml", "--extra", "worker"],
    "server.txt": ["pyproject.toml", "--extra", "server"],
    "dev.txt": ["pyproject.toml", "--extra", "embedded", "--group", "dev"],
}


def resolve(inputs: list[str], output: Path) -> None:
    command = [
        sys.executable, "-m", "uv", "pip", "compile", *inputs,
        "--universal", "--python-version", "3.11", "--generate-hashes", "--no-emit-index-url",
        "--no-emit-package", "agentflow", "--no-header", "--no-annotate", "--quiet", "--output-file", str(output),
    ]  # fmt: skip
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail if a lock file no longer answers pyproject.toml")
    check = parser.parse_args().check
    stale: list[str] = []
    for name, inputs in LOCKS.items():
        lock = ROOT / "requirements" / name
        if not check:
            resolve(inputs, lock)
            continue
        with tempfile.TemporaryDirectory() as scratch:
            fresh = Path(scratch) / name
            fresh.write_text(lock.read_text())
            resolve(inputs, fresh)
            if fresh.read_text() != lock.read_text():
                stale.append(name)
    if stale:
        print(f"stale lock files: {', '.join(stale)}\n  try: make lock, and commit the result", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
