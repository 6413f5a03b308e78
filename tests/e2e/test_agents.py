"""Which agents have workers, as the SDK and `af` tell it."""

import json

import pytest

from agentflow.errors import NotFound
from agentflow.sdk.blocking import BlockingClient


async def test_agents_page_themselves_and_one_of_them_is_told_with_its_workers(api):
    page = await api.agents(limit=2)
    by_page = [agent async for agent in api.iter_agents(limit=2)]

    assert (len(page.items), page.total_count, page.next_cursor is None) == (2, len(by_page), False)
    assert len(by_page) > 2
    assert [agent.name for agent in by_page] == sorted({agent.name for agent in by_page})
    assert [agent.name async for agent in api.iter_agents(name="classifier")] == ["classifier"]
    one = await api.agent("classifier")
    assert (one.health, one.workers, [instance.health for instance in one.instances]) == ("ok", 1, ["ok"])
    with pytest.raises(NotFound):
        await api.agent("nobody/at all")


def test_a_program_without_an_event_loop_is_told_the_same(platform):
    with BlockingClient(platform.api_url, api_key=platform.api_key) as client:
        assert "classifier" in [agent.name for agent in client.agents(limit=1)]
        assert client.agent("classifier").instances


def test_af_lists_agents_and_shows_who_answers_for_one(af):
    listed = {agent["name"]: agent for agent in json.loads(af("agents", "list", "--json").stdout)}
    shown = json.loads(af("agents", "show", "classifier", "--json").stdout)

    (instance,) = shown.pop("instances")
    assert shown == listed["classifier"]
    assert "classifier" in af("agents", "list").stdout
    assert instance["worker"] in af("agents", "show", "classifier").stdout
    unknown = af("agents", "show", "clasifier", may_fail=True)
    assert unknown.returncode != 0
    assert "classifier" in unknown.stderr
