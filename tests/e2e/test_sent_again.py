"""A request with an `Idempotency-Key` can be sent again after a lost answer: nothing more is made by it."""

import httpx
import pytest

from agentflow.sdk.client import Client


@pytest.fixture
async def root(platform):
    """The administrator of the deployment, over plain HTTP."""
    async with httpx.AsyncClient(
        base_url=f"{platform.api_url}/api/v1",
        trust_env=False,
        timeout=30,
        headers={"Authorization": f"Bearer {platform.api_key}"},
    ) as http:
        yield http


async def again(http, path, body, *, key):
    """The same request twice: both answers."""
    answers = [await http.post(path, json=body, headers={"Idempotency-Key": key}) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [201, 201], [answer.text for answer in answers]
    return [answer.json() for answer in answers]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/users", {"email": "again@example.com", "password": "a long enough sentence", "roles": ["viewer"]}),
        ("/service-accounts", {"name": "again", "roles": ["viewer"]}),
        ("/roles", {"name": "again", "permissions": ["tools.read"], "allowed_tools": ["kb.*"]}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_whoever_is_added_twice_with_one_key_is_there_once(root, path, body):
    first, second = await again(root, path, body, key="again")

    assert first == second
    named = {field: body[field] for field in ("name", "email") if field in body}
    field, value = next(iter(named.items()))
    found = (await root.get(path, params={f"filter[{field}]": value})).json()
    assert ([item["id"] for item in found["items"]], found["total_count"]) == ([first["id"]], 1)


async def test_the_same_key_for_another_request_is_refused(root):
    await again(root, "/service-accounts", {"name": "one", "roles": []}, key="two-things")

    other = await root.post("/service-accounts", json={"name": "other"}, headers={"Idempotency-Key": "two-things"})

    assert (other.status_code, other.json()["code"]) == (409, "AF1219")


async def test_a_key_is_shown_once_however_often_its_request_is_sent(root, platform):
    first, second = await again(root, "/api-keys", {"name": "again", "scopes": ["tools.read"]}, key="a-key")

    assert second == {**first, "key": None}
    async with Client(platform.api_url, api_key=first["key"]) as client:
        assert (await client.identity.whoami()).credential.id == first["id"]


async def test_a_tenant_and_its_first_admin_are_made_once(root, platform):
    body = {"id": "made-again", "quotas": {"workflows": 3}}
    first, second = await again(root, "/tenants", body, key="a-tenant")

    assert second == {**first, "admin": {"user": first["admin"]["user"], "api_key": None}}
    async with Client(platform.api_url, api_key=first["admin"]["api_key"]) as admin:
        assert [account.id for account in await admin.identity.service_accounts()] == [first["admin"]["user"]]
    without = await root.post("/tenants", json=body)
    assert without.status_code == 409, "without the key, or with another, it is there already"


async def test_what_a_key_remembers_of_a_person_does_not_help_to_guess_their_password(root):
    """Sent again with another password it is taken for the same request: the password is in nothing that is kept."""
    body = {"email": "secretive@example.com", "password": "a long enough sentence"}
    first = await root.post("/users", json=body, headers={"Idempotency-Key": "secretive"})
    other = await root.post(
        "/users", json={**body, "password": "quite another sentence"}, headers={"Idempotency-Key": "secretive"}
    )

    assert (first.status_code, other.status_code) == (201, 201)
    assert other.json() == first.json()
    login = {"grant_type": "password", "email": body["email"]}
    assert (await root.post("/auth/token", json={**login, "password": body["password"]})).status_code == 200
    assert (await root.post("/auth/token", json={**login, "password": "quite another sentence"})).status_code == 401
