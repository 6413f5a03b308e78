"""The first credential of a deployment: made once, told once.

Where nobody has ever been added, a service account with the role admin and a key for it are made; the key is shown on
stderr this one time, or written to a file that only its owner may read (`AF_BOOTSTRAP_FILE`, which `af dev` sets).
Where that file has gone, another key takes the place of the lost one: whoever may choose the file and reach the
database owns the deployment already.
"""

import sys
from pathlib import Path
from typing import Protocol

from agentflow.clock import Clock
from agentflow.durable_files import replace_private
from control_plane.identity import api_keys
from control_plane.identity.api_keys import NewKey
from control_plane.identity.people import DEPLOYMENT_TENANT, ApiKey, CredentialStore, Person

BOOTSTRAP_USER = "svc_bootstrap"
_SHOWN = """
AgentFlow has started for the first time. This is the administrator's API key; it is shown this once:

    {key}

Use it with `af auth login --api-key`, or as AF_API_KEY. Add people and keys of their own, then revoke it.

"""


class BootstrapStore(CredentialStore, Protocol):
    async def add_first(self, person: Person, key: ApiKey, hashed_secret: str) -> bool:
        """In one transaction, if there is nobody yet. False where there was somebody."""
        ...

    async def replace_key(self, key: ApiKey, hashed_secret: str) -> bool:
        """Revoke the person's other keys and add this one. False where there is no such person."""
        ...


async def bootstrap(store: BootstrapStore, clock: Clock, file: Path | None) -> None:
    if file is not None and await _still_good(store, clock, file):
        return
    made = api_keys.new_key()
    now_ms = clock.now_ms()
    person = Person(
        tenant=DEPLOYMENT_TENANT,
        id=BOOTSTRAP_USER,
        kind="service",
        name="bootstrap",
        email=None,
        created_at_ms=now_ms,
    )
    key = ApiKey(id=made.id, tenant=person.tenant, user=person.id, name="made at the first start", created_at_ms=now_ms)
    first = await store.add_first(person, key, made.hashed_secret)
    if first or (file is not None and await store.replace_key(key, made.hashed_secret)):
        _tell(made, file)


async def _still_good(store: CredentialStore, clock: Clock, file: Path) -> bool:
    try:
        parts = api_keys.parse(file.read_text().strip())  # noqa: ASYNC240 - a line, before anything is served
    except (OSError, UnicodeDecodeError):
        return False
    found = None if parts is None else await store.key(parts[0])
    return (
        parts is not None
        and found is not None
        and api_keys.fits(parts[1], found[1])
        and found[0].usable(clock.now_ms())
    )


def _tell(made: NewKey, file: Path | None) -> None:
    if file is None:
        sys.stderr.write(_SHOWN.format(key=made.text))
        sys.stderr.flush()
        return
    replace_private(file, f"{made.text}\n".encode())
