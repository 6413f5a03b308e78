"""Whatever is listed is shown alike when it is looked at alone, for every noun that has both."""

import pytest

HOLDS = """
apiVersion: agentflow/v1
kind: Workflow
metadata: {name: agrees, version: 1.0.0}
spec:
  planner: fsm
  fsm:
    initial_state: hold
    final_states: [hold]
    states:
      hold: {human: {title: Go on?}, timeout: 1h}
"""
# The list, and where one of its items is shown.
NOUNS = {
    "workflows": "/workflows/{id}",
    "executions": "/executions/{id}",
    "tools": "/tools/{id}",
    "agents": "/agents/{name}",
    "schedules": "/schedules/{name}",
    "users": "/users/{id}",
    "service-accounts": "/users/{id}",
    "roles": "/roles/{id}",
    "tenants": "/tenants/{id}",
}
IN_DETAIL_ONLY = {"workflow": {"digest", "tools"}}  # what the detail tells of something that a list only names


@pytest.fixture
async def everything(http):
    """At least one of each noun."""
    yaml = {"Content-Type": "application/yaml"}
    assert (await http.post("/api/v1/workflows", content=HOLDS, headers=yaml)).is_success
    for path, body in (
        ("/workflows/agrees/execute", {}),
        ("/schedules", {"name": "agrees", "workflow": "agrees", "every": "1h"}),
        ("/users", {"email": "agrees@example.com", "roles": ["viewer"]}),
        ("/service-accounts", {"name": "agrees", "roles": ["developer"]}),
        ("/roles", {"name": "agrees", "permissions": ["tools.read"], "allowed_tools": ["kb.*"]}),
        ("/tenants", {"id": "agrees", "quotas": {"workflows": 1}}),
    ):
        answer = await http.post(f"/api/v1{path}", json=body, headers={"Idempotency-Key": "agrees"})
        assert answer.is_success, answer.text


def without(view, hidden):
    return {name: value for name, value in view.items() if name not in hidden}


@pytest.mark.parametrize("noun", NOUNS)
async def test_every_item_of_a_list_says_what_its_detail_says(http, everything, noun):
    listed = (await http.get(f"/api/v1/{noun}", params={"limit": 200})).raise_for_status().json()
    assert listed["items"], f"there are no {noun} to compare"
    assert listed["total_count"] >= len(listed["items"])
    for item in listed["items"]:
        shown = (await http.get("/api/v1" + NOUNS[noun].format(**item))).raise_for_status().json()
        if noun in ("agents", "executions", "schedules"):  # these move by themselves: what is compared stands still
            moving = {"running", "workers", "status", "ended_at", "next_at", "last_at", "recent", "fired", "health"}
            item, shown = without(item, moving), without(shown, moving)
        for name, value in item.items():
            told = shown[name]
            if name in IN_DETAIL_ONLY and isinstance(told, dict):
                told = without(told, IN_DETAIL_ONLY[name])
            assert told == value, (noun, name)


async def test_the_status_of_what_stands_still_is_the_same_in_list_and_detail(http, everything):
    """Executions that wait for a person: whatever else runs on this platform, they do not move."""
    path = "/api/v1/executions"
    listed = (await http.get(path, params={"filter[workflow]": "agrees"})).json()["items"]
    assert listed
    for item in listed:
        assert (await http.get(f"{path}/{item['id']}")).json()["status"] == item["status"] == "running"
    tasks = (await http.get("/api/v1/tasks")).json()["items"]
    assert {item["id"] for item in listed} <= {task["execution"] for task in tasks}
