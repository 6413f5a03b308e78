"""A version is tried on the executions its workflow has had before it is registered."""

import json

import msgspec
import pytest

from agentflow.errors import Invalid
from agentflow.sdk.models import Deployed
from tests.e2e.test_replay import ran, text


async def deployed(api, definition: str, **how) -> Deployed:
    job = await api.records.deploy(definition, **how)
    return msgspec.convert((await api.records.finished(job.id)).result, Deployed)


async def test_a_version_that_changes_nothing_for_recorded_executions_is_registered(api):
    first = await deployed(api, text("steady", "1.0.0"))
    for n in (1, 7):
        await ran(api, "steady", n)

    second = await deployed(api, text("steady", "1.1.0", least=5))

    assert (first.registered, first.replays.replayed) == (True, 0)
    assert (second.registered, second.replays.replayed, second.replays.diverged) == (True, 2, 0)
    assert (await api.workflow("steady")).version == "1.1.0"


async def test_one_that_would_have_gone_another_way_is_blocked_until_that_is_accepted_with_a_reason(api, http):
    await deployed(api, text("changed", "1.0.0"))
    await ran(api, "changed", 3)

    blocked = await deployed(api, text("changed", "1.1.0", least=5))

    assert (blocked.registered, blocked.workflow, blocked.replays.diverged) == (False, None, 1)
    assert (await api.workflow("changed")).version == "1.0.0"

    taken = await deployed(api, text("changed", "1.1.0", least=5), accept_divergence="small ones wait now")

    assert taken.registered
    assert (await api.workflow("changed")).version == "1.1.0"
    newest, oldest = await api.records.deployments("changed")
    assert (newest.version, newest.diverged, newest.reason) == ("1.1.0", 1, "small ones wait now")
    assert (oldest.version, oldest.reason) == ("1.0.0", "")
    audit = (await http.get("/api/v1/audit", params={"filter[action]": "workflows.deploy"})).json()["items"]
    records = [link["record"] for link in audit if link["record"]["resource"]["id"] == "changed@1.1.0"]
    assert "small ones wait now" in [record["details"].get("accepted_divergence") for record in records]
    assert newest.by == (await api.identity.whoami()).user


async def test_a_wrong_definition_is_refused_at_once(api):
    with pytest.raises(Invalid):
        await api.records.deploy("not: a workflow")


async def test_a_person_deploys_in_a_terminal(api, af, tmp_path):
    (tmp_path / "first.yaml").write_text(text("typed", "1.0.0"))
    (tmp_path / "next.yaml").write_text(text("typed", "1.1.0", least=5))
    assert "registered typed 1.0.0" in af("deploy", "first.yaml").stdout
    await ran(api, "typed", 3)

    blocked = af("deploy", "next.yaml", may_fail=True)

    assert blocked.returncode == 2
    assert "so it was not registered" in blocked.stderr
    assert "decided   timer.started.v1" in blocked.stdout
    assert "registered typed 1.1.0" in af("deploy", "next.yaml", "--accept-divergence", "as agreed").stdout
    assert json.loads(af("deploy", "next.yaml", "--json").stdout)["created"] is False
