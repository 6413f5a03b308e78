"""What an admin does about people, roles, keys and tenants, and what none of them may do."""

import uuid

import pytest

from agentflow.errors import Conflict, Forbidden, Invalid, Limited, NotFound, Unauthenticated
from agentflow.sdk.client import Client
from agentflow.testing import eventually

WORKFLOW = """
apiVersion: agentflow/v1
kind: Workflow
metadata: {name: NAME, version: 1.0.0}
spec:
  planner: fsm
  fsm:
    initial_state: hold
    final_states: [look]
    states:
      hold: {agent: AGENT, timeout: 1h, on_success: look}
      look: {tool: kb.search, input: {query: x}}
"""
PASSWORD = "a long enough sentence"


def workflow(name: str, agent: str = "hosted-by-nobody") -> str:
    return WORKFLOW.replace("NAME", name).replace("AGENT", agent)


@pytest.fixture
async def root(platform):
    async with Client(platform.api_url, api_key=platform.api_key) as client:
        yield client


@pytest.fixture
async def tenant(root):
    """A new tenant's id, and a client of its first admin."""
    made = await root.identity.add_tenant(f"t-{uuid.uuid4().hex[:8]}")
    assert made.admin is not None
    async with Client(root.api_url, api_key=made.admin.api_key) as client:
        yield made.id, client


async def logged_in(url: str, tenant: str, email: str, password: str) -> str:
    async with Client(url) as client:
        return (await client.identity.login(email=email, password=password, tenant=tenant)).access_token


async def test_a_person_logs_in_works_and_is_out_at_once_when_disabled(tenant):
    name, admin = tenant
    person = await admin.identity.add_user("Mara@Example.com", password=PASSWORD, roles=["developer"])
    token = await logged_in(admin.api_url, name, "mara@example.com", PASSWORD)

    async with Client(admin.api_url, token=token) as mara:
        assert (await mara.identity.whoami()).roles == ["developer"]
        await mara.push_workflow(workflow("hers"))
        with pytest.raises(Forbidden):
            await mara.identity.users()

        await admin.identity.change_user(person.id, roles=["viewer"])
        with pytest.raises(Forbidden):
            await mara.push_workflow(workflow("another"))

        await admin.identity.change_user(person.id, disabled=True)
        with pytest.raises(Unauthenticated):
            await mara.workflows()
        await admin.identity.change_user(person.id, disabled=False)
        with pytest.raises(Unauthenticated):  # what they were logged in with before stays ended
            await mara.workflows()
    assert await logged_in(admin.api_url, name, "mara@example.com", PASSWORD)


async def test_a_new_password_ends_what_the_old_one_opened(tenant):
    name, admin = tenant
    person = await admin.identity.add_user("mara@example.com", password=PASSWORD, roles=["viewer"])
    before = await logged_in(admin.api_url, name, "mara@example.com", PASSWORD)

    await admin.identity.change_user(person.id, password="another long sentence")

    async with Client(admin.api_url, token=before) as mara:
        with pytest.raises(Unauthenticated):
            await mara.workflows()
    with pytest.raises(Unauthenticated):
        await logged_in(admin.api_url, name, "mara@example.com", PASSWORD)
    assert await logged_in(admin.api_url, name, "mara@example.com", "another long sentence")
    with pytest.raises(Invalid, match="12 to"):
        await admin.identity.change_user(person.id, password="short")


async def test_guessing_gets_slower_whether_the_account_exists_or_not(tenant):
    name, admin = tenant
    await admin.identity.add_user("mara@example.com", password=PASSWORD)
    for email in ("mara@example.com", "nobody@example.com"):
        told = []
        for _ in range(9):
            try:
                await logged_in(admin.api_url, name, email, "wrong wrong wrong")
            except (Unauthenticated, Limited) as refused:
                told.append((type(refused).__name__, str(refused)))
        assert told[0][0] == "Unauthenticated"
        assert "Limited" in {kind for kind, _ in told}
        assert email not in "".join(text for _, text in told)


async def test_a_key_does_no_more_than_its_scopes_and_ends_with_its_revocation_tokens_included(tenant):
    _, admin = tenant
    key = await admin.identity.add_api_key("ci", scopes=["workflows.read"])
    assert key.key is not None
    assert key.key not in repr(key)
    async with Client(admin.api_url, api_key=key.key) as limited:
        await limited.workflows()
        with pytest.raises(Forbidden):
            await limited.push_workflow(workflow("w"))
        with pytest.raises(Forbidden):  # nor can it make a key that may
            await limited.identity.add_api_key("more", scopes=["workflows.write"])
        with pytest.raises(Forbidden):
            await limited.identity.add_api_key("all")
        token = await limited.identity.exchange_api_key(key.key)

    async with Client(admin.api_url, token=token.access_token) as exchanged:
        await exchanged.workflows()
        with pytest.raises(Forbidden):
            await exchanged.push_workflow(workflow("w"))
        await admin.identity.revoke_api_key(key.id)
        with pytest.raises(Unauthenticated):
            await exchanged.workflows()
    assert all(one.key is None for one in await admin.identity.api_keys())


async def test_nobody_gives_away_more_than_they_have_and_an_admin_stays(tenant):
    _, admin = tenant
    me = await admin.identity.whoami()
    await admin.identity.add_role("hr", ["users.read", "users.write", "roles.read"])
    account = await admin.identity.add_service_account("hr", roles=["hr"])
    key = await admin.identity.add_api_key("hr", user=account.id)

    async with Client(admin.api_url, api_key=key.key) as hr:
        for attempt in (
            hr.identity.add_service_account("sneaky", roles=["admin"]),
            hr.identity.change_user(account.id, roles=["hr", "admin"]),
            hr.identity.change_user(me.user, disabled=True),
            hr.identity.add_api_key("as the admin", user=me.user),
        ):
            with pytest.raises(Forbidden):
                await attempt
        assert (await hr.identity.add_service_account("fine")).roles == []
    for attempt in (
        admin.identity.change_user(me.user, disabled=True),
        admin.identity.change_user(me.user, roles=["viewer"]),
        admin.identity.remove_role("admin"),
        admin.identity.change_role("viewer", ["users.write"]),
        admin.identity.remove_role("hr"),
        admin.identity.add_role("viewer", []),
    ):
        with pytest.raises(Conflict):
            await attempt
    with pytest.raises(NotFound):
        await admin.identity.add_service_account("x", roles=["no-such-role"])


async def test_keys_of_others_are_made_seen_and_ended_by_who_may_and_by_nobody_else(tenant):
    _, admin = tenant
    keys = {}
    nobody = await admin.identity.add_service_account("nobody")
    for role in ("developer", "auditor"):
        account = await admin.identity.add_service_account(role, roles=[role])
        keys[role] = await admin.identity.add_api_key(role, user=account.id)

    async with Client(admin.api_url, api_key=keys["developer"].key) as developer:
        assert [key.id for key in await developer.identity.api_keys()] == [keys["developer"].id]
        with pytest.raises(NotFound):
            await developer.identity.revoke_api_key(keys["auditor"].id)
        with pytest.raises(Forbidden):  # not even for somebody who may do less
            await developer.identity.add_api_key("theirs", user=nobody.id, scopes=[])
    async with Client(admin.api_url, api_key=keys["auditor"].key) as auditor:
        assert {key.id for key in keys.values()} < {key.id for key in await auditor.identity.api_keys()}
        with pytest.raises(Forbidden):
            await auditor.identity.revoke_api_key(keys["developer"].id)
        await auditor.identity.revoke_api_key(keys["auditor"].id)
        with pytest.raises(Unauthenticated):
            await auditor.identity.whoami()


async def test_nobody_gives_away_more_tools_than_they_have(tenant):
    _, admin = tenant
    permissions = ["users.read", "users.write", "roles.read", "roles.write", "tools.test"]
    await admin.identity.add_role("clerk", permissions, allowed_tools=["kb.*"], workflows=["support-*"])
    await admin.identity.add_role("all-tools", ["tools.test"])
    account = await admin.identity.add_service_account("clerk", roles=["clerk"])
    key = await admin.identity.add_api_key("clerk", user=account.id)

    async with Client(admin.api_url, api_key=key.key) as clerk:
        for attempt in (
            clerk.identity.add_service_account("sneaky", roles=["all-tools"]),
            clerk.identity.add_role("every-tool", ["tools.test"], workflows=["support-*"]),
            clerk.identity.add_role("every-workflow", ["tools.test"], allowed_tools=["kb.*"]),
        ):
            with pytest.raises(Forbidden):
                await attempt
        assert await clerk.identity.add_service_account("fine", roles=["clerk"])


async def test_a_role_for_some_tools_and_workflows_reaches_no_others(tenant):
    _, admin = tenant
    await admin.push_workflow(workflow("support-a"))
    await admin.push_workflow(workflow("payroll"))
    permissions = ["workflows.execute", "tools.test", "schedules.write"]
    await admin.identity.add_role("kb-only", permissions, allowed_tools=["kb.*"], workflows=["support-*"])
    await admin.identity.add_role("no-kb", permissions, allowed_tools=["json.*"], workflows=["support-*"])
    keys = {}
    for role in ("kb-only", "no-kb"):
        account = await admin.identity.add_service_account(role, roles=[role])
        keys[role] = (await admin.identity.add_api_key(role, user=account.id)).key

    async with Client(admin.api_url, api_key=keys["kb-only"]) as allowed:
        await allowed.execute("support-a", {})
        with pytest.raises(Forbidden, match="payroll"):
            await allowed.execute("payroll", {})
        with pytest.raises(Forbidden, match="shell"):
            await allowed.test_tool("shell.run", {})
    async with Client(admin.api_url, api_key=keys["no-kb"]) as other:
        with pytest.raises(Forbidden, match=r"kb\.search"):
            await other.execute("support-a", {})


PARENT = """
apiVersion: agentflow/v1
kind: Workflow
metadata: {name: support-parent, version: 1.0.0}
spec:
  planner: fsm
  fsm:
    initial_state: below
    final_states: [below]
    states:
      below: {subworkflow: {name: support-child}, timeout: 1h}
"""


async def test_what_a_role_does_not_allow_is_not_reached_through_a_schedule_a_fork_or_a_child(tenant):
    _, admin = tenant
    await admin.push_workflow(workflow("payroll"))
    await admin.push_workflow(workflow("support-child"))
    await admin.push_workflow(PARENT)
    await admin.create_schedule("pay-day", "payroll", every="30d", paused=True)
    paid = (await admin.execute("payroll", {})).execution_id
    permissions = ["workflows.execute", "schedules.write", "schedules.read"]
    await admin.identity.add_role("support", permissions, workflows=["support-*"], allowed_tools=["json.*"])
    account = await admin.identity.add_service_account("support", roles=["support"])
    key = await admin.identity.add_api_key("support", user=account.id)

    async with Client(admin.api_url, api_key=key.key) as limited:
        for attempt in (
            limited.trigger_schedule("pay-day"),
            limited.resume_schedule("pay-day"),
            limited.create_schedule("mine", "payroll", every="30d"),
            limited.fork(paid, from_="hold"),
        ):
            with pytest.raises(Forbidden, match="payroll"):
                await attempt
        with pytest.raises(Forbidden, match=r"kb\.search"):
            await limited.execute("support-parent", {})
    assert (await admin.schedule("pay-day")).status == "paused"
    assert await admin.trigger_schedule("pay-day")


async def test_a_key_for_somebody_else_reaches_no_tool_that_its_maker_does_not(tenant):
    _, admin = tenant
    me = await admin.identity.whoami()
    permissions = ["users.read", "users.write", "tools.test", "workflows.execute"]
    await admin.identity.add_role("clerk", permissions, allowed_tools=["kb.*"], workflows=["support-*"])
    account = await admin.identity.add_service_account("clerk", roles=["clerk"])
    key = await admin.identity.add_api_key("clerk", user=account.id)

    async with Client(admin.api_url, api_key=key.key) as clerk:
        with pytest.raises(Forbidden):
            await clerk.identity.add_api_key("as the admin", user=me.user, scopes=["tools.test"])
        assert await clerk.identity.add_api_key("as myself", scopes=["tools.test"])


async def test_quotas_are_held_and_tell_what_to_do(root, tenant):
    name, admin = tenant
    await root.identity.change_tenant(name, quotas={"workflows": 1, "agents": 1, "executions_per_day": 2})
    await admin.push_workflow(workflow("first"))
    await admin.push_workflow(workflow("first").replace("1.0.0", "1.0.1"))  # another version is not another workflow
    for other in (workflow("second"), workflow("first", agent="another").replace("1.0.0", "1.0.2")):
        with pytest.raises(Forbidden, match="may have 1"):
            await admin.push_workflow(other)

    for _ in range(2):
        await admin.execute("first", {})
    with pytest.raises(Limited, match="2 executions today"):
        await admin.execute("first", {})
    used = await admin.identity.tenant_use(name)
    assert (used.workflows, used.agents, used.executions_today) == (1, 1, 2)

    async def stores_something() -> bool:  # counted in the background
        return (await admin.identity.tenant_use(name)).storage_bytes > 0

    await eventually(stores_something, within_s=30)
    await root.identity.change_tenant(name, quotas={"storage_bytes": 1})
    with pytest.raises(Limited, match="bytes of storage"):
        await admin.execute("first", {})
    await root.identity.change_tenant(name, quotas={})
    await admin.execute("first", {})


async def test_only_the_tenant_that_runs_the_deployment_makes_tenants(root, tenant):
    name, admin = tenant
    with pytest.raises(Forbidden):
        await admin.identity.add_tenant("sneaky")
    with pytest.raises(Forbidden):
        await admin.identity.change_tenant(name, quotas={})
    with pytest.raises(NotFound):
        await admin.identity.tenant("default")
    with pytest.raises(Conflict):
        await root.identity.add_tenant(name)
    assert (await admin.identity.tenant(name)).id == name
