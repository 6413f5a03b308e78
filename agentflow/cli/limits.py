"""`af limits`: every bound there is, how much of it is used, why it is there, and the setting behind it.

The bounds of this release are known without a control plane. What is used of a tenant's quotas only one can tell; where
none answers, or the caller may not ask, they are left out and that is said.
"""

import asyncio
import inspect
import re

import msgspec

from agentflow.cli.output import JsonFlag, print_json, print_table, stderr

_LINE = re.compile(r"^(?P<name>[A-Z][A-Z0-9_]*) = .*?(?:  # (?P<why>.*))?$", re.MULTILINE)
_ASK_WITHIN_S = 10.0


class _Row(msgspec.Struct, frozen=True):
    limit: str
    value: str
    used: str
    setting: str
    why: str


def show_limits(json: JsonFlag = False) -> None:
    """List every limit, what is used of it where that is counted, its reason, and the setting that changes it.

    The quotas of your tenant come first, with what it uses of them now.

    \b
    Examples:
      af limits
      af limits --json
    """
    rows = [*_quotas_or_why_not(), *_of_this_release()]
    if json:
        print_json(rows)
    else:
        print_table([name.upper() for name in _Row.__struct_fields__], [msgspec.structs.astuple(row) for row in rows])


def _of_this_release() -> list[_Row]:
    from agentflow import limits
    from agentflow.settings import Settings, load_settings

    chosen = load_settings()
    setting_of = {
        name: field for field, name in _DEFAULTS.items() if field in Settings.model_fields and hasattr(limits, name)
    }
    rows = []
    for found in _LINE.finditer(inspect.getsource(limits)):
        name = found["name"]
        field = setting_of.get(name)
        value = getattr(limits, name) if field is None else getattr(chosen, field)
        rows.append(_Row(name.lower(), str(value), "", f"AF_{field.upper()}" if field else "", found["why"] or ""))
    return rows


def _quotas_or_why_not() -> list[_Row]:
    from agentflow.errors import AgentFlowError

    try:
        return asyncio.run(_quotas())
    except (AgentFlowError, TimeoutError) as error:
        reason = error.message if isinstance(error, AgentFlowError) else "The control plane is slow to answer."
        stderr().print(f"Without your tenant's quotas and their use: {reason}", style="dim")
        return []


async def _quotas() -> list[_Row]:
    from agentflow.cli.connection import control_plane

    async with asyncio.timeout(_ASK_WITHIN_S), control_plane() as api:
        mine = (await api.identity.whoami()).tenant
        tenant, use = await api.identity.tenant(mine), await api.identity.tenant_use(mine)
        under_way = (await api.executions(status="running,paused", limit=1)).total_count
        queued = (await api.executions(status="queued", limit=1)).total_count
    counted = msgspec.structs.asdict(use) | {"executions_under_way": under_way}
    rows = []
    for name, (what, why) in _USES.items():
        quota = tenant.quotas.get(name)
        used, setting = _number(counted[what]), f"af tenants set {mine} --quota {name}=N"
        rows.append(_Row(f"quota.{name}", "none" if quota is None else _number(quota), used, setting, why))
    return [*rows, _Row("queued", "none", str(queued), "", "executions that wait for room; counted up to 10,000")]


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else f"{value:.6f}".rstrip("0")


# What is counted against each quota, and when it holds.
_USES = {
    "agents": ("agents", "different ones: of its own workers, and those its workflows name"),
    "workflows": ("workflows", "by name; versions are free"),
    "executions_per_day": ("executions_today", "begun since midnight UTC"),
    "executions_at_once": ("executions_under_way", "more are queued; counted up to 10,000"),
    "dollars_per_month": ("dollars_this_month", "spent since the first of the month"),
    "storage_bytes": ("storage_bytes", "counted in the background"),
}

# Settings whose default is a limit, and which limit.
_DEFAULTS = {
    "ack_wait_s": "ACK_WAIT_S",
    "dispatch_window": "DISPATCH_WINDOW",
    "drain_s": "DRAIN_S",
    "lease_s": "LEASE_S",
    "open_executions_max": "OPEN_EXECUTIONS_MAX",
    "resend_after_s": "RESEND_AFTER_S",
    "snapshot_every": "STATE_SNAPSHOT_EVENTS",
    "spool_mb": "SPOOL_MB",
    "worker_lost_s": "WORKER_LOST_AFTER_S",
}
