"""Generates agentflow/v1 from the .proto files, or checks that it is current (--check)."""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCES = sorted((ROOT / "proto").rglob("*.proto"))


def generate(into: Path) -> None:
    outputs = [f"--{kind}_out={into}" for kind in ("python", "pyi", "grpc_python")]
    files = [str(source.relative_to(ROOT / "proto")) for source in SOURCES]
    command = [sys.executable, "-m", "grpc_tools.protoc", "-I", str(ROOT / "proto"), *outputs, *files]
    subprocess.run(command, cwd=ROOT, check=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    if not parser.parse_args().check:
        generate(ROOT)
        return 0
    with tempfile.TemporaryDirectory() as scratch:
        generate(Path(scratch))
        fresh = sorted((Path(scratch) / "agentflow" / "v1").iterdir())
        stale = [
            file.name
            for file in fresh
            if not (ROOT / "agentflow" / "v1" / file.name).exists()
            or (ROOT / "agentflow" / "v1" / file.name).read_bytes() != file.read_bytes()
        ]
    if stale:
        print(f"generated code is stale: {', '.join(stale)}\n  try: make proto, and commit the result", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
