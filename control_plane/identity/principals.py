"""Who stands behind a request, once its credential has proved good; and the ways it may not."""

from typing import Literal

import msgspec

from agentflow.errors import Forbidden, Unauthenticated
from agentflow.ids import TenantId
from control_plane.identity.permissions import Authority, Permission

Kind = Literal["person", "service"]


class Principal(msgspec.Struct, frozen=True):
    tenant: TenantId
    id: str  # of the person or service account
    kind: Kind
    name: str  # for people to read; never to decide by
    roles: tuple[str, ...]
    authority: Authority
    via: Literal["token", "api_key"]
    credential: str  # the token's or key's id, which is no secret
    expires_at_ms: int | None

    def require(self, permission: Permission) -> None:
        if permission not in self.authority.permissions:
            raise NotPermitted(permission)

    def require_tool(self, name: str) -> None:
        if not self.authority.may_use_tool(name):
            raise ToolNotAllowed(name)

    def require_workflow(self, name: str) -> None:
        if not self.authority.may_run(name):
            raise WorkflowNotAllowed(name)


class NoCredential(Unauthenticated):
    code = "AF1703"

    def __init__(self) -> None:
        super().__init__(
            "This needs a credential, and the request has none.",
            hint="Send `Authorization: Bearer` and a token or an API key; for af: `af auth login`, or AF_API_KEY.",
        )


class BadCredential(Unauthenticated):
    """One answer for every reason: whoever guesses learns nothing from it. The log has the reason."""

    code = "AF1704"

    def __init__(self, reason: str = "") -> None:
        super().__init__(
            "The credential is not valid here: it is wrong, expired or revoked.",
            hint="Log in again (`af auth login`), or use another API key.",
        )
        self.reason = reason


class NotPermitted(Forbidden):
    code = "AF1705"

    def __init__(self, permission: Permission) -> None:
        super().__init__(
            f"Your roles do not allow this: it needs the permission {permission}.",
            hint="`af auth whoami` shows what you may do; an admin of your tenant can give you a role.",
        )


class ToolNotAllowed(Forbidden):
    code = "AF1706"

    def __init__(self, tool: str) -> None:
        super().__init__(
            f"Your roles do not allow the tool {tool!r}.",
            hint="An admin of your tenant can add it to `allowed_tools` of one of your roles.",
        )


class WorkflowNotAllowed(Forbidden):
    code = "AF1707"

    def __init__(self, workflow: str) -> None:
        super().__init__(
            f"Your roles do not allow executing the workflow {workflow!r}.",
            hint="An admin of your tenant can add it to `policies.workflows` of one of your roles.",
        )
