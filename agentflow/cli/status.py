"""`af status`: what kind of deployment answers, and how it is guarded."""

import asyncio
from typing import TYPE_CHECKING

from agentflow.cli.output import JsonFlag, print_json, print_table

if TYPE_CHECKING:
    from agentflow.sdk.models import DeploymentStatus


def show_status(json: JsonFlag = False) -> None:
    """Show what the control plane runs on: mode, authentication, store, bus, and how tools are fenced.

    \b
    Examples:
      af status
      af status --json
    """
    asyncio.run(_show(json))


async def _show(json: bool) -> None:
    from agentflow.cli.connection import control_plane

    async with control_plane() as api:
        status, url = await api.status(), api.api_url
    if json:
        print_json(status)
    else:
        print_table(("part", "is", "note"), _rows(status, url))


def _rows(status: "DeploymentStatus", url: str) -> list[tuple[str, str, str]]:
    auth, store, bus = status.auth, status.store, status.bus
    fences = ", ".join(f"{one.sandbox} ({one.workers})" for one in status.isolation)
    return [
        ("control plane", status.version, _said(url, under_tls=status.tls)),
        ("mode", status.mode, "one machine, for trying things out" if status.mode == "dev" else ""),
        (
            "auth",
            _on(auth.required),
            _said("keys, passwords", oidc=auth.oidc, mTLS=auth.client_certificates),
        ),
        ("store", store.engine, _said(ready=store.ready, under_tls=store.tls, encrypted_fields=store.encrypted_fields)),
        ("bus", bus.kind, _said(ready=bus.ready, under_tls=bus.tls, on_the_same_machine=bus.local)),
        ("isolation", fences or "none", "the weakest of each worker" if fences else "no worker runs tools for you now"),
    ]


def _on(is_on: bool) -> str:
    return "on" if is_on else "off"


def _said(*always: str, **ifs: bool) -> str:
    """What is true, in a line; what should be and is not, with a `not`."""
    shown = [*always]
    for name, is_true in ifs.items():
        if is_true or name in ("ready", "under_tls"):
            shown.append(("" if is_true else "not ") + name.replace("_", " "))
    return ", ".join(shown)
