"""A new user's first minute: `af dev` from the built wheel, from nothing to a first result, and once more.

The wheel is installed into an environment of its own, which borrows only the libraries of this one: what is measured is
ours, not the package index. `tests/e2e/test_installed.py` holds the same way in to its promise of a minute.
"""

import json
import os
import re
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

from rich.console import Console

from agentflow.settings import inherited_environment
from bench.report import Results

ROOT = Path(__file__).parents[2]
WARM_STARTS = 3
_TICKET = {"ticket": "I forgot my password and the reset link has expired.", "customer": "Mara"}


class Installed:
    """Our wheel in an environment of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._af = folder / "venv" / "bin" / "af"
        python = folder / "venv" / "bin" / "python"
        dist = folder / "dist"
        _ran(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", dist, cwd=ROOT)
        _ran(sys.executable, "-m", "venv", "--without-pip", folder / "venv", cwd=folder)
        (wheel,) = dist.glob("*.whl")
        install = ("install", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-index", wheel)
        _ran(sys.executable, "-m", "pip", "--python", python, *install, cwd=folder)
        (packages,) = (folder / "venv").glob("lib/python*/site-packages")
        (packages / "borrowed.pth").write_text(sysconfig.get_path("purelib"))
        # The server of the bus is a program in a wheel of its own, beside this interpreter.
        path = os.pathsep.join((str(self._af.parent), str(Path(sys.executable).parent), os.defpath))
        self._environment = {**inherited_environment(), "PATH": path}
        (folder / "project").mkdir()

    def af(self, *words: str | Path) -> str:
        return _ran(self._af, *words, cwd=self.folder / "project", env=self._environment)

    def dev(self) -> "Dev":
        return Dev([str(self._af), "dev", "--port", "0"], self.folder / "project", self._environment)


class Dev:
    """`af dev`, from its first line until Ctrl-C; `ready_s` is how long it took to be up."""

    def __init__(self, command: list[str], folder: Path, environment: dict[str, str]) -> None:
        self._command, self._folder, self._environment = command, folder, environment
        self.ready_s = 0.0

    def __enter__(self) -> "Dev":
        log = self._folder / "dev.log"
        began_s = time.monotonic()
        with log.open("w") as output:
            self._process = subprocess.Popen(
                self._command, cwd=self._folder, env=self._environment, stdout=output, stderr=subprocess.STDOUT
            )
        while "Executions appear here" not in log.read_text():
            if self._process.poll() is not None or time.monotonic() - began_s > 60:
                self._process.kill()
                raise RuntimeError(f"af dev did not come up:\n{log.read_text()}")
            time.sleep(0.01)
        self.ready_s = time.monotonic() - began_s
        found = re.search(r"AF_API_URL=(\S+)", log.read_text())
        if found:
            self._environment["AF_API_URL"] = found[1]  # for the commands that follow
        return self

    def __exit__(self, *_: object) -> None:
        self._process.send_signal(signal.SIGINT)
        self._process.wait(30)


def first_result(installed: Installed) -> str:
    """Push the support template's workflow and run it once; the status that it ends with."""
    workflow = next((installed.folder / "venv").rglob("templates/support/workflow.yaml"))
    installed.af("workflow", "push", workflow)
    status: str = json.loads(installed.af("run", "support", "--input", json.dumps(_TICKET), "--json"))["status"]
    return status


def run(console: Console) -> Results:
    with tempfile.TemporaryDirectory(prefix="agentflow-start-") as folder:
        console.print("installing the wheel ...", style="dim")
        installed = Installed(Path(folder))
        began_s = time.monotonic()
        with installed.dev() as cold:
            status = first_result(installed)
            first_s = time.monotonic() - began_s
        warm = []
        for _ in range(WARM_STARTS):
            with installed.dev() as again:
                warm.append(again.ready_s)
    if status != "completed":
        raise RuntimeError(f"the first run ended as {status}")
    figures = {"cold_start_s": cold.ready_s, "first_result_s": first_s, "warm_start_s": sorted(warm)[len(warm) // 2]}
    return {"af dev": {"start": figures}}


def _ran(*command: str | Path, cwd: Path, env: dict[str, str] | None = None) -> str:
    ran = subprocess.run([str(word) for word in command], cwd=cwd, env=env, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise RuntimeError(f"{command[0]} failed:\n{ran.stdout}{ran.stderr}")
    return ran.stdout
