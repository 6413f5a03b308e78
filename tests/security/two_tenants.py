"""Two tenants of one deployment: `ours` owns one of everything that can be named, `theirs` owns nothing."""

import re
from typing import Any, cast

import httpx

from control_plane.identity.permissions import BUILT_IN

WORKFLOW = """
apiVersion: agentflow/v1
kind: Workflow
metadata: {name: mine, version: 1.0.0}
spec:
  planner: fsm
  fsm:
    initial_state: hold
    final_states: [hold]
    states:
      hold: {wait: {signal: go}, timeout: 1h}
"""
TOOL = """
apiVersion: agentflow/v1
kind: Tool
metadata: {name: mine.echo, version: 1.0.0}
spec:
  run: {type: http, url: "https://mine.example.com/echo"}
  permissions: ["network.http:mine.example.com"]
  input: {type: object}
"""


class TwoTenants:
    def __init__(self, api_url: str, api_key: str) -> None:
        """`api_key`: of the administrator of the whole deployment."""
        self.api_key = api_key
        self.http = httpx.Client(base_url=api_url, trust_env=False, timeout=30)
        self.ours = self._tenant("ours")
        self.theirs = self._tenant("theirs")
        self.names = self._belongings()
        self.roles = {role: self._key_of_role(role) for role in BUILT_IN}

    def call(self, bearer: str | None, method: str, path: str, body: Any = None, **more: Any) -> httpx.Response:
        headers = {} if bearer is None else {"Authorization": f"Bearer {bearer}"}
        return self.http.request(method, path, json=body, headers={**headers, **more.pop("headers", {})}, **more)

    def made(self, bearer: str, path: str, body: Any = None, **more: Any) -> dict[str, Any]:
        answer = self.call(bearer, "POST", path, body, **more)
        assert answer.status_code in (200, 201, 202), answer.text
        return cast(dict[str, Any], answer.json())

    def path(self, template: str) -> str:
        return re.sub(r"{(\w+)(?::path)?}", lambda match: self.names.get(match[1], "1"), template)

    def _tenant(self, name: str) -> str:
        return cast(str, self.made(self.api_key, "/api/v1/tenants", {"id": name})["admin"]["api_key"])

    def _key_of_role(self, role: str) -> str:
        account = self.made(self.ours, "/api/v1/service-accounts", {"name": role, "roles": [role]})
        return cast(str, self.made(self.ours, "/api/v1/api-keys", {"name": role, "user": account["id"]})["key"])

    def _belongings(self) -> dict[str, str]:
        yaml = {"Content-Type": "application/yaml"}
        for path, text in (("/api/v1/workflows", WORKFLOW), ("/api/v1/tools", TOOL)):
            assert self.http.post(
                path, content=text, headers={**yaml, "Authorization": f"Bearer {self.ours}"}
            ).is_success
        started = self.made(self.ours, "/api/v1/workflows/mine/execute", {})
        self.made(self.ours, "/api/v1/schedules", {"name": "mine", "workflow": "mine", "every": "1h"})
        account = self.made(self.ours, "/api/v1/service-accounts", {"name": "somebody"})
        role = self.made(self.ours, "/api/v1/roles", {"name": "mine", "permissions": ["tools.read"]})
        key = self.made(self.ours, "/api/v1/api-keys", {"name": "mine", "user": account["id"]})
        budget = self.made(self.ours, "/api/v1/budgets", {"scope": "agent", "name": "nobody", "dollars": "1"})
        job = self.made(self.ours, "/api/v1/workflows/mine/replay", {"last": 1})
        snapshot = self.made(self.ours, f"/api/v1/executions/{started['execution_id']}/snapshots", {})
        return {
            "execution": started["execution_id"],
            "snapshot": snapshot["id"],
            "budget": budget["id"],
            "job": job["job_id"],
            "trace": started["trace_id"],
            "reference": "mine",
            "name": "mine",
            "plan": "current",
            "path": "hold",
            "user": account["id"],
            "role": role["id"],
            "key": key["id"],
            "tenant": "ours",
        }


# What a right request to an operation holds, where `{}` is not right.
BODIES: dict[str, Any] = {
    "/api/v1/executions/{execution}/signal": {"name": "go"},
    "/api/v1/executions/{execution}/vars": {"vars": {"a": 1}},
    "/api/v1/executions/{execution}/tasks/{path:path}/answer": {"answer": {}},
    "/api/v1/roles/{role}": {"permissions": []},
    "/api/v1/users/{user}": {"name": "taken over"},
}
