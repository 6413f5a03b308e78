"""Proving who one is, against the running platform: tokens, keys, `af auth`, and what was left where."""

import json
import stat
import subprocess
import sys
from pathlib import Path

import httpx
import jwt
import pytest

from agentflow.errors import Unauthenticated
from agentflow.sdk.client import Client
from agentflow.settings import inherited_environment

AF = Path(sys.executable).with_name("af")


@pytest.fixture
async def http(platform):
    async with httpx.AsyncClient(base_url=platform.api_url, trust_env=False, timeout=30) as client:
        yield client


async def test_without_a_credential_nothing_is_told_but_that_one_is_needed(http):
    answer = await http.get("/api/v1/executions")

    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == 'Bearer realm="agentflow"'
    assert answer.json()["code"] == "AF1703"
    for bearer in ("guessed", "afk_" + "a" * 16 + "_" + "b" * 52, "e30.e30.e30"):
        answer = await http.get("/api/v1/executions", headers={"Authorization": f"Bearer {bearer}"})
        assert (answer.status_code, answer.json()["code"]) == (401, "AF1704")
        assert bearer not in answer.text
    answer = await http.get("/api/v1/executions", headers={"Authorization": "Basic YWRtaW46YWRtaW4="})
    assert answer.status_code == 401


async def test_a_key_becomes_a_token_that_works_until_it_is_ended(platform, http):
    async with Client(platform.api_url) as api:
        token = await api.identity.exchange_api_key(platform.api_key, ttl_s=600)
    assert 0 < token.expires_in <= 600
    assert token.access_token not in repr(token)

    async with Client(platform.api_url, token=token.access_token) as api:
        me = await api.identity.whoami()
        assert (me.tenant, me.roles, me.credential.via) == ("default", ["admin"], "token")
        await api.executions()

        await api.identity.logout()
        with pytest.raises(Unauthenticated):
            await api.executions()


async def test_others_can_verify_our_tokens_with_the_published_keys(platform, http):
    published = (await http.get("/.well-known/jwks.json")).json()
    made = await http.post("/api/v1/auth/token", json={"grant_type": "api_key", "api_key": platform.api_key})

    assert made.headers["cache-control"] == "no-store"
    token = made.json()["access_token"]
    keys = jwt.PyJWKSet.from_dict(published)
    key = keys[jwt.get_unverified_header(token)["kid"]]
    assert jwt.decode(token, key, algorithms=["EdDSA"], audience="agentflow", issuer="agentflow")["tenant"] == "default"
    assert all(set(key) == {"kty", "crv", "x", "kid", "use", "alg"} for key in published["keys"])


def test_the_platform_leaves_its_key_to_its_owner_alone_and_tells_it_to_no_log(platform):
    home = platform.control_plane.log.parent.parent

    for name in ("admin.key", "credential.json", "identity.key"):
        assert stat.S_IMODE((home / name).stat().st_mode) == 0o600, name
    for log in (home / "logs").iterdir():
        assert platform.api_key not in log.read_text(), log
        assert platform.api_key.rpartition("_")[2] not in log.read_text(), log


def test_af_finds_the_key_of_its_home_and_sends_it_to_no_other_address(platform, tmp_path):
    home = str(platform.control_plane.log.parent.parent)

    def af(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
        base = {**inherited_environment(), "AF_CREDENTIALS_FILE": str(tmp_path / "none.json")}
        return subprocess.run(
            [AF, *words], cwd=tmp_path, env={**base, **env}, capture_output=True, text=True, timeout=60, check=False
        )

    here = af("auth", "whoami", "--json", AF_HOME=home, AF_API_URL=platform.api_url)
    assert json.loads(here.stdout)["roles"] == ["admin"], here.stderr

    other_name = platform.api_url.replace("127.0.0.1", "localhost")
    elsewhere = af("auth", "whoami", AF_HOME=home, AF_API_URL=other_name)
    assert elsewhere.returncode == 2
    assert "AF1703" in elsewhere.stderr


def test_af_logs_in_and_out_again(platform, tmp_path):
    kept = tmp_path / "kept" / "credentials.json"
    env = {**inherited_environment(), "AF_API_URL": platform.api_url, "AF_CREDENTIALS_FILE": str(kept)}

    def af(*words: str, given: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [AF, *words], cwd=tmp_path, env=env, input=given, capture_output=True, text=True, timeout=60, check=False
        )

    assert "AF1712" in af("auth", "login", "--api-key").stderr
    assert "AF1704" in af("auth", "login", "--api-key", given="afk_nonsense\n").stderr
    assert not kept.exists()

    login = af("auth", "login", "--api-key", given=f"{platform.api_key}\n")
    assert login.returncode == 0, login.stderr
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert platform.api_key not in kept.read_text() + login.stdout + login.stderr
    assert af("executions", "list").returncode == 0

    kept.chmod(0o644)
    assert "AF1711" in af("executions", "list").stderr
    kept.chmod(0o600)

    assert af("auth", "logout").returncode == 0
    assert "AF1703" in af("executions", "list").stderr
