"""Whose workers a step goes to."""

import pytest

from agentflow.contracts.pools import NOTHING_SHARED, SHARED, Pools, may_act_for
from agentflow.settings import InvalidSettings, load_settings


def settings(**environ):
    return load_settings(environ={"AF_CONFIG_FILE": "/dev/null", **environ})


def test_steps_go_to_their_own_tenants_workers_where_nothing_is_shared():
    assert NOTHING_SHARED.of("acme", "classifier") == "acme"
    assert NOTHING_SHARED.all_of("acme") == ("acme",)


def test_steps_of_a_shared_agent_go_to_the_shared_workers_whoever_asks_and_others_do_not():
    pools = Pools(["tools"])

    assert {pools.of(tenant, "tools") for tenant in ("acme", "default")} == {SHARED}
    assert pools.of("acme", "classifier") == "acme"
    assert pools.all_of("acme") == ("acme", SHARED)


def test_a_star_shares_every_agent():
    assert Pools(["*"]).of("acme", "classifier") == SHARED
    assert Pools(["*"]).all_of("acme") == (SHARED,)


def test_only_a_tenants_own_workers_and_the_shared_ones_may_act_for_it():
    assert may_act_for("acme", "acme")
    assert may_act_for(SHARED, "acme")
    assert not may_act_for("default", "acme")


def test_a_worker_that_is_told_nothing_serves_the_default_tenant():
    assert settings().worker_pool() == "default"
    assert settings(AF_SHARED_AGENTS="tools").worker_pool() == "default"
    assert settings(AF_WORKER_TENANT="acme").worker_pool() == "acme"


def test_a_worker_is_shared_where_it_says_so_or_where_everything_is():
    assert settings(AF_WORKER_TENANT="*").worker_pool() == SHARED
    assert settings(AF_SHARED_AGENTS="*").worker_pool() == SHARED
    assert settings(AF_SHARED_AGENTS="*", AF_WORKER_TENANT="acme").worker_pool() == "acme"


@pytest.mark.parametrize("tenant", ["_shared", "Acme", "a.b", ">", "x" * 64])
def test_a_worker_of_no_possible_tenant_does_not_start(tenant):
    with pytest.raises(InvalidSettings):
        settings(AF_WORKER_TENANT=tenant)
