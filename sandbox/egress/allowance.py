"""What one call may reach, for whom, and how much of it: the words between `worker.tools`, `door` and `ways`."""

import msgspec

from agentflow.contracts.tool_records import CallSite
from sandbox.egress.policy import Grant


class Credential(msgspec.Struct, frozen=True):
    """A secret that the proxy puts into a header of requests to one host. The sandbox never sees it."""

    host: str
    secret: str
    header: str = "Authorization"
    format: str = "Bearer {}"


class Limits(msgspec.Struct, frozen=True):
    connections_max: int = 32
    bytes_up_max: int = 64 * 1024 * 1024
    bytes_down_max: int = 256 * 1024 * 1024
    head_s: float = 10.0
    connection_s: float = 300.0


class Allowance(msgspec.Struct, frozen=True):
    site: CallSite
    grants: tuple[Grant, ...] = ()
    credentials: tuple[Credential, ...] = ()
    limits: Limits = Limits()
