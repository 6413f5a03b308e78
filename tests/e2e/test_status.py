"""Nobody takes one kind of deployment for another: `af status` says what it is, and auth cannot be turned off."""

import json

import pytest

from agentflow.settings import InvalidSettings, load_settings
from agentflow.testing import eventually


async def test_the_status_says_mode_auth_store_bus_and_isolation(api, af):
    async def told() -> bool:
        return bool((await api.status()).isolation)  # workers say it with their heartbeats

    await eventually(told)
    said = json.loads(af("status", "--json").stdout)

    assert said["mode"] == "dev"
    assert said["auth"] == {"required": True, "oidc": False, "client_certificates": False}
    assert (said["store"]["engine"], said["store"]["ready"]) == ("sqlite", True)
    assert said["bus"] == {"kind": "nats", "local": True, "tls": False, "ready": True}
    assert said["isolation"] == [{"sandbox": "process", "workers": 1}]
    shown = af("status").stdout
    for word in ("mode", "dev", "auth", "on", "store", "sqlite", "bus", "nats", "isolation", "process"):
        assert word in shown


async def test_the_status_is_not_for_strangers(platform, http):
    del http.headers["Authorization"]

    assert (await http.get("/api/v1/status")).status_code == 401


@pytest.mark.parametrize("mode", ["prod", "dev"])
def test_nothing_starts_with_auth_turned_off(mode):
    with pytest.raises(InvalidSettings) as refused:
        load_settings(environ={"AF_CONFIG_FILE": "/dev/null", "AF_MODE": mode, "AF_AUTH": "off"})

    (problem,) = refused.value.problems
    assert problem.path == "AF_AUTH"
    assert "always prove" in problem.hint


def test_a_server_is_for_production_unless_it_is_told_otherwise():
    assert load_settings(environ={"AF_CONFIG_FILE": "/dev/null"}).mode == "prod"
