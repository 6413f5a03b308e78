"""`af limits` says how much of each quota is used now, and what changes it (UA-4 d)."""

import json

from agentflow.sdk.client import Client
from control_plane.identity.tenants import Quotas

QUOTAS = {"workflows": 5, "executions_at_once": 1, "executions_per_day": 100}
WORKFLOW = """\
apiVersion: agentflow/v1
kind: Workflow
metadata: {name: waits-here, version: 1.0.0}
spec:
  planner: fsm
  fsm:
    initial_state: wait
    final_states: [wait]
    states:
      wait: {wait: {duration: 1h}}
"""


async def test_every_quota_is_listed_with_its_use_and_with_what_changes_it(api, af):
    tenant = await api.identity.add_tenant("measured", quotas=QUOTAS)
    async with Client(api.api_url, api_key=tenant.admin.api_key) as client:
        await client.push_workflow(WORKFLOW)
        started = [(await client.execute("waits-here", {})).execution_id for _ in range(2)]

        listed = {row["limit"]: row for row in json.loads(af("limits", "--json", api_key=tenant.admin.api_key).stdout)}

        for execution in started:
            await client.terminate(execution)
    assert {name for name in listed if name.startswith("quota.")} == {
        f"quota.{each}" for each in Quotas.__struct_fields__
    }
    told = {
        name: (listed[f"quota.{name}"]["value"], listed[f"quota.{name}"]["used"]) for name in Quotas.__struct_fields__
    }
    assert (told["workflows"], told["executions_at_once"], told["executions_per_day"]) == (
        ("5", "1"),
        ("1", "1"),
        ("100", "2"),
    )
    assert told["dollars_per_month"] == ("none", "0")
    assert listed["queued"]["used"] == "1"
    assert listed["quota.workflows"]["setting"] == "af tenants set measured --quota workflows=N"
