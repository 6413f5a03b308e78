"""Served under TLS to who trusts the authority and, with mTLS, has a certificate of it; beyond this machine only so."""

import re
import ssl
import subprocess
import sys
from pathlib import Path

import grpc
import httpx
import pytest

from agentflow.devstack.process import ChildProcess
from agentflow.settings import InvalidSettings, inherited_environment, load_settings

AF = Path(sys.executable).with_name("af")
READY = re.compile(r'^(?=.*"event":\s*"control_plane\.ready").*"grpc":\s*"(?P<grpc>[^"]+)', re.MULTILINE)


@pytest.fixture
def certs(tmp_path: Path) -> Path:
    made = tmp_path / "certs"
    command = [AF, "certs", "init", made, "--host", "agentflow.test"]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    return made


async def test_rest_and_grpc_under_mutual_tls_answer_only_who_has_a_certificate(tmp_path, nats, certs):
    assert {file.name: oct(file.stat().st_mode & 0o777) for file in certs.glob("*.key")} == {
        f"{part}.key": "0o600" for part in ("control-plane", "worker", "client", "nats", "postgres")
    }
    environment = {
        **inherited_environment(),
        "AF_HOME": str(tmp_path / "home"),
        "AF_NATS_URL": nats.url,
        "AF_HTTP_LISTEN": "0.0.0.0:0",
        "AF_GRPC_LISTEN": "127.0.0.1:0",
        "AF_BOOTSTRAP_FILE": str(tmp_path / "admin.key"),
        "AF_TLS_CERT_FILE": str(certs / "control-plane.pem"),
        "AF_TLS_KEY_FILE": str(certs / "control-plane.key"),
        "AF_TLS_CLIENT_CA_FILE": str(certs / "ca.pem"),
        "AF_LOG_FORMAT": "json",
    }
    served = await ChildProcess.start(
        "control-plane", [sys.executable, "-m", "control_plane"], log=tmp_path / "log", env=environment, ready=READY,
        ready_within_s=60,
    )  # fmt: skip
    try:
        assert served.ready_match is not None
        found = re.search(r'"http":\s*"https://[^:"]+:(\d+)"', (tmp_path / "log").read_text())
        assert found
        url, key = f"https://localhost:{found[1]}/api/v1/auth/whoami", (tmp_path / "admin.key").read_text().strip()
        headers = {"Authorization": f"Bearer {key}", "Host": "agentflow.test"}
        trusting = ssl.create_default_context(cafile=certs / "ca.pem")
        async with httpx.AsyncClient(verify=trusting, trust_env=False) as stranger:
            with pytest.raises((httpx.TransportError, ssl.SSLError)):
                await stranger.get(url, headers=headers)
        async with httpx.AsyncClient(verify=True, trust_env=False) as distrustful:
            with pytest.raises(httpx.TransportError):
                await distrustful.get(url, headers=headers)
        trusting.load_cert_chain(certs / "client.pem", certs / "client.key")
        async with httpx.AsyncClient(verify=trusting, trust_env=False) as known:
            assert (await known.get(url)).status_code == 401  # a certificate is no credential
            told = await known.get(url, headers=headers)
            assert told.json()["roles"] == ["admin"]
            assert told.headers["strict-transport-security"] == "max-age=31536000"
        await _grpc_is_closed_to_strangers(served.ready_match["grpc"], certs)
    finally:
        await served.stop()


async def _grpc_is_closed_to_strangers(address: str, certs: Path) -> None:
    ca, pem, key = ((certs / name).read_bytes() for name in ("ca.pem", "client.pem", "client.key"))
    for credentials, status in (
        (grpc.ssl_channel_credentials(ca), grpc.StatusCode.UNAVAILABLE),
        (grpc.ssl_channel_credentials(ca, key, pem), grpc.StatusCode.UNAUTHENTICATED),
    ):
        async with grpc.aio.secure_channel(address, credentials) as channel:
            call = channel.unary_unary("/agentflow.v1.WorkflowService/Register")
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await call(b"", timeout=10)
            assert refused.value.code() is status


@pytest.mark.parametrize("field", ["AF_HTTP_LISTEN", "AF_GRPC_LISTEN"])
def test_nothing_is_served_beyond_this_machine_without_tls_unless_somebody_says_so(field):
    with pytest.raises(InvalidSettings):
        load_settings(environ={field: "0.0.0.0:80"})

    assert load_settings(environ={field: "0.0.0.0:80", "AF_LISTEN_INSECURE": "true"})
    pair = {"AF_TLS_CERT_FILE": "c.pem", "AF_TLS_KEY_FILE": "c.key"}
    assert load_settings(environ={field: "0.0.0.0:80", **pair})
    with pytest.raises(InvalidSettings):
        load_settings(environ={field: "0.0.0.0:80", "AF_TLS_CERT_FILE": "c.pem"})
