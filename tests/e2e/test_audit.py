"""Who did what, on the running platform: every way in and every tool is on record, and the record can be proved."""

import json
import re
import secrets
import subprocess
import sys
from pathlib import Path

import grpc
import httpx
import pytest

from agentflow.contracts.audit import chain_faults
from agentflow.sdk.blocking import BlockingClient
from agentflow.sdk.client import Client
from agentflow.settings import inherited_environment
from agentflow.testing import eventually
from agentflow.v1 import agentflow_pb2 as pb
from agentflow.v1 import agentflow_pb2_grpc as pb_grpc

AF = Path(sys.executable).with_name("af")
TICKET = {"customer": "Mara", "ticket": "I forgot my password and the reset link has expired."}


class Tenant:
    """A tenant of its own, so that its chain holds what the test did and nothing else."""

    def __init__(self, platform, name, key) -> None:
        self.name = name
        self.key = key
        self.http = httpx.Client(
            base_url=platform.api_url, trust_env=False, timeout=30, headers={"Authorization": f"Bearer {self.key}"}
        )

    def post(self, path, body=None, **more):
        return self.http.post(f"/api/v1{path}", json=body, **more)

    def key_of(self, role):
        account = self.post("/service-accounts", {"name": role, "roles": [role]}).json()["id"]
        return self.post("/api-keys", {"name": role, "user": account}).json()["key"]

    def records(self, sort="seq", **filters):
        asked = {"sort": sort, "limit": 200, **{f"filter[{name}]": value for name, value in filters.items()}}
        return [link["record"] for link in self.http.get("/api/v1/audit", params=asked).json()["items"]]


@pytest.fixture
def default(platform):
    """The tenant whose worker is there."""
    tenant = Tenant(platform, "default", platform.api_key)
    yield tenant
    tenant.http.close()


@pytest.fixture
def tenant(platform, default):
    name = f"audited-{secrets.token_hex(4)}"
    tenant = Tenant(platform, name, default.post("/tenants", {"id": name}).json()["admin"]["api_key"])
    yield tenant
    tenant.http.close()


def push(tenant, text):
    return tenant.http.post("/api/v1/workflows", content=text, headers={"Content-Type": "application/yaml"})


async def test_what_people_and_tools_did_is_on_record_once(default, support):
    assert push(default, support).status_code in (200, 201)
    started = default.post("/workflows/support/execute", {"input": TICKET, "wait": True}).json()["execution_id"]
    again = default.post(f"/executions/{started}/retry")
    assert again.status_code == 409  # it has not failed: nothing changed, so nothing is on record

    def tool_calls():
        found = default.records(action="tools.call", sort="-seq")
        return [each for each in found if each["details"]["execution_id"] == started]

    (called,) = await eventually(tool_calls, within_s=15)
    (executed,) = await eventually(lambda: default.records(resource=started))
    pushed = default.records(action="workflows.register", resource="support@1.0.0")[-1]

    assert (executed["action"], executed["resource"]["type"]) == ("workflows.execute", "execution")
    assert executed["details"]["parameters"] == {"reference": "support"}
    assert pushed["resource"] == {"type": "workflow", "id": "support@1.0.0"}
    assert (called["resource"], called["outcome"]) == ({"type": "tool", "id": "kb.search"}, "done")
    assert called["actor"]["kind"] == "worker"
    assert "Mara" not in json.dumps(executed)  # what people send is the event store's, not the record's


async def test_a_refusal_is_on_record_with_who_was_refused_what(tenant):
    viewer = tenant.key_of("viewer")
    me = tenant.http.get("/api/v1/auth/whoami", headers={"Authorization": f"Bearer {viewer}"}).json()["user"]
    refused = tenant.post("/roles", {"name": "mine"}, headers={"Authorization": f"Bearer {viewer}"})
    assert refused.status_code == 403
    looked = tenant.http.get("/api/v1/audit", headers={"Authorization": f"Bearer {viewer}"})
    assert looked.status_code == 403

    async def denied():
        found = tenant.records(outcome="denied")
        return found if len(found) == 2 else None

    records = await eventually(denied)
    assert [(each["action"], each["actor"]["id"]) for each in records] == [
        ("identity.add_role", me),
        ("audit.list_audit", me),
    ]
    assert records[0]["details"]["permission"] == "roles.write"


async def test_an_auditor_may_read_the_record_and_a_neighbour_sees_nothing_of_it(platform, tenant):
    auditor = tenant.key_of("auditor")
    await eventually(lambda: tenant.records(action="identity.add_key"))

    async with Client(platform.api_url, api_key=auditor) as api:
        links = [link async for link in api.audit.iterate()]
        checkpoint = await api.audit.checkpoint()
    async with Client(platform.api_url, api_key=platform.api_key) as neighbour:
        others = await neighbour.audit.list({"resource": tenant.name, "action": "identity.add_service_account"})

    assert {link.record["tenant"] for link in links} == {tenant.name}
    assert list(chain_faults(links)) == []
    assert checkpoint.size >= links[-1].seq
    assert others.items == []
    with BlockingClient(platform.api_url, api_key=auditor) as api:
        assert api.call(lambda client: client.audit.checkpoint()).tenant == tenant.name


async def test_keys_and_passwords_are_in_no_record(tenant):
    password = "correct horse battery " + secrets.token_hex(8)
    key = tenant.key_of("viewer")
    tenant.post("/users", {"email": "audit@example.com", "password": password, "roles": ["viewer"]})
    await eventually(lambda: tenant.records(action="identity.add_user"))

    text = json.dumps(tenant.records())
    for secret in (password, key, key.rpartition("_")[2], tenant.key):
        assert secret not in text


async def test_grpc_is_on_record_like_rest(platform, tenant, support):
    ready = re.findall(r'"grpc": *"([^"]+)"', platform.control_plane.log.read_text())[-1]
    metadata = (("authorization", f"Bearer {tenant.key}"),)
    viewer = (("authorization", f"Bearer {tenant.key_of('viewer')}"),)
    async with grpc.aio.insecure_channel(ready) as channel:
        workflows = pb_grpc.WorkflowServiceStub(channel)
        await workflows.Register(pb.RegisterRequest(definition=support), metadata=metadata)
        call = workflows.Execute(pb.ExecuteRequest(workflow="support", input=_value(TICKET)), metadata=metadata)
        started = (await call).execution.id
        with pytest.raises(grpc.aio.AioRpcError):
            await workflows.Register(pb.RegisterRequest(definition=support), metadata=viewer)
        await workflows.Get(pb.WorkflowServiceGetRequest(reference="support"), metadata=metadata)

    (executed,) = await eventually(lambda: tenant.records(action="workflows.execute"))
    assert executed["resource"] == {"type": "execution", "id": started}

    def outcomes():
        return [each["outcome"] for each in tenant.records(action="workflows.register")]

    await eventually(lambda: outcomes() == ["done", "denied"])
    assert tenant.records(action="workflows.get") == []


def _value(data):
    from google.protobuf import json_format, struct_pb2

    return json_format.ParseDict(data, struct_pb2.Value())


def af(*arguments, key, api_url, cwd):
    return subprocess.run(
        [AF, *arguments],
        cwd=cwd,
        env={**inherited_environment(), "AF_API_URL": api_url, "AF_API_KEY": key},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


async def test_af_exports_the_record_and_proves_it_without_a_server(platform, tenant, tmp_path):
    for name in ("viewer", "operator", "developer"):
        tenant.key_of(name)

    async def all_chained():
        return len(tenant.records()) == 6

    await eventually(all_chained)
    here = {"key": tenant.key, "api_url": platform.api_url, "cwd": tmp_path}

    assert af("audit", "checkpoint", "kept.json", **here).returncode == 0
    listed = af("audit", "list", "--action", "identity.add_key", **here)
    assert listed.stdout.count("identity.add_key") == 3, listed.stderr
    assert af("audit", "export", "audit.jsonl", **here).returncode == 0
    offline = {"key": "", "api_url": "http://127.0.0.1:1", "cwd": tmp_path}
    proved = af("audit", "verify", "audit.jsonl", "--checkpoint", "kept.json", **offline)
    assert proved.returncode == 0, proved.stderr
    assert "6 records, whole" in proved.stdout

    lines = (tmp_path / "audit.jsonl").read_text().splitlines()
    broken = {
        "changed": [lines[0].replace("identity.add_service_account", "nothing.at.all"), *lines[1:]],
        "removed": [*lines[:2], *lines[3:]],
        "moved": [lines[1], lines[0], *lines[2:]],
        "put in": [lines[0], lines[0], *lines[1:]],
        "cut off": [*lines[:4], lines[-1]],
        "without a checkpoint": lines[:-1],
        "signed anew": [*lines[:-1], re.sub(r'"size":\d+', '"size":5', lines[-1])],
    }
    for kind, text in broken.items():
        (tmp_path / "broken.jsonl").write_text("\n".join(text) + "\n")
        found = af("audit", "verify", "broken.jsonl", "--checkpoint", "kept.json", **offline)
        assert found.returncode == 2, (kind, found.stdout)
        assert "AF1801" in found.stderr, kind
    (tmp_path / "other.txt").write_text("hello\n")
    assert "AF1802" in af("audit", "verify", "other.txt", **offline).stderr
