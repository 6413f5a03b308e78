"""`af limits`: every bound there is, why it is there, and the setting behind it."""

import inspect
import re

from agentflow.cli.output import JsonFlag, print_json, print_table

_LINE = re.compile(r"^(?P<name>[A-Z][A-Z0-9_]*) = .*?(?:  # (?P<why>.*))?$", re.MULTILINE)


def show_limits(json: JsonFlag = False) -> None:
    """List every limit of this release, its reason, and the setting that changes it where there is one.

    \b
    Examples:
      af limits
      af limits --json
    """
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
        rows.append((name.lower(), str(value), f"AF_{field.upper()}" if field else "", found["why"] or ""))
    if json:
        print_json([dict(zip(("limit", "value", "setting", "why"), row, strict=True)) for row in rows])
    else:
        print_table(("LIMIT", "VALUE", "SETTING", "WHY"), rows)


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
