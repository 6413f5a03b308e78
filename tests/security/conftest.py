"""The world of the egress tests: two network namespaces, made for one module and gone with it."""

import datetime
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from agentflow.contracts.tool_records import EgressRecord
from agentflow.settings import environment_with

NEAR = Path(__file__).parent / "egress" / "near.py"
ROOT = Path(__file__).parents[2]
NAMES = ("allowed.test", "other.test", "secret.test", "unlisted.test")


def make_certificates(folder: Path, named: tuple[str, ...] = NAMES) -> None:
    """An authority that only this test trusts, and one certificate for all its names."""
    now = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
    authority_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "the test's authority")])

    def certificate(subject: x509.Name, public: Any, extension: Any) -> bytes:
        builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(public)
        builder = builder.serial_number(x509.random_serial_number()).not_valid_before(now)
        builder = builder.not_valid_after(now + datetime.timedelta(days=36500)).add_extension(extension, critical=True)
        return builder.sign(authority_key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "ca.pem").write_bytes(
        certificate(issuer, authority_key.public_key(), x509.BasicConstraints(ca=True, path_length=0))
    )
    names = x509.SubjectAlternativeName([x509.DNSName(name) for name in named])
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, named[0])])
    (folder / "server.pem").write_bytes(pem + certificate(subject, key.public_key(), names))


class World:
    """`near` by its pipe, and what was seen on either side."""

    def __init__(self, folder: Path, near: subprocess.Popen[str]) -> None:
        self.folder = folder
        self._near = near

    def tell(self, asked: dict[str, Any]) -> dict[str, Any]:
        assert self._near.stdin is not None
        assert self._near.stdout is not None
        self._near.stdin.write(json.dumps(asked) + "\n")
        self._near.stdin.flush()
        answer: dict[str, Any] = json.loads(self._near.stdout.readline())
        return answer

    def door(self, *grants: str, **more: Any) -> str:
        path: str = self.tell({"open": {"grants": grants, **more}})["path"]
        return path

    def seen(self, kind: str) -> list[str]:
        file = self.folder / kind
        return file.read_text().splitlines() if file.exists() else []

    def records(self) -> list[EgressRecord]:
        return [msgspec.json.decode(line, type=EgressRecord) for line in self.seen("records")]


def missing() -> str:
    lacking = [name for name in ("unshare", "ip", "mount") if shutil.which(name) is None]
    if os.geteuid() != 0:
        return "the egress world needs root to make network namespaces; run the tests as root"
    if lacking:
        return f"the egress world needs {', '.join(lacking)}: apt-get install -y iproute2 util-linux"
    tried = subprocess.run(["unshare", "--net", "--mount", "true"], capture_output=True, text=True, check=False)
    return f"this machine refuses network namespaces: {tried.stderr.strip()}" if tried.returncode else ""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    if reason := missing():
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("egress")
    make_certificates(folder)
    near = subprocess.Popen(
        ["unshare", "--net", "--mount", sys.executable, str(NEAR), str(folder)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT,
        env=environment_with({"PYTHONPATH": str(ROOT)}),
    )  # fmt: skip
    assert near.stdin is not None
    assert near.stdout is not None
    try:
        assert near.stdout.readline() == "ready\n", "near did not start; its error is above"
        yield World(folder, near)
    finally:
        near.stdin.close()
        near.wait(timeout=10)
        near.stdout.close()
