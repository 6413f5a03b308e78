"""Fields that are stored encrypted: which they are, and how each is written and read.

A column marked `SENSITIVE` holds what people send through workflows; a test fails for a marked column that is not here.
Each field is sealed to its tenant, column and row (`agentflow.encryption.field`). Without keys fields are stored as
they are, and what was stored so stays readable once there are keys; `rekey` beside this seals it.
"""

from agentflow.encryption.field import Place, is_sealed, seal, sealed_prefix, unseal
from agentflow.encryption.keyring import KeyRing, UnknownKey

EVENT_DATA = "event_store.event_data"
SNAPSHOT_STATE = "execution_snapshots.state"
SEALED_FIELDS = (EVENT_DATA, SNAPSHOT_STATE)


class FieldSeal:
    def __init__(self, ring: KeyRing | None = None) -> None:
        self.ring = ring

    def event(self, tenant: str, execution: str, version: int, data: bytes) -> str:
        """An event as its column takes it: JSON, so a sealed one is a JSON string. No event is a string itself."""
        if self.ring is None:
            return data.decode()
        return f'"{seal(self.ring, _place(tenant, EVENT_DATA, execution, version), data)}"'

    def opened_event(self, tenant: str, execution: str, version: int, stored: str) -> str | bytes:
        if not stored.startswith('"'):
            return stored
        return unseal(self._keys(stored[1:-1]), _place(tenant, EVENT_DATA, execution, version), stored[1:-1])

    def state(self, tenant: str, execution: str, version: int, data: bytes) -> bytes:
        """A packed state as its column takes it; sealed, it begins as no compressed one does."""
        if self.ring is None:
            return data
        return seal(self.ring, _place(tenant, SNAPSHOT_STATE, execution, version), data).encode()

    def opened_state(self, tenant: str, execution: str, version: int, stored: bytes) -> bytes:
        if not stored.startswith(sealed_prefix().encode()):
            return stored
        sealed = stored.decode()
        return unseal(self._keys(sealed), _place(tenant, SNAPSHOT_STATE, execution, version), sealed)

    def _keys(self, sealed: str) -> KeyRing:
        if self.ring is None:
            raise UnknownKey(sealed.split(":")[1] if is_sealed(sealed) else "")
        return self.ring


PLAIN = FieldSeal()


def _place(tenant: str, field: str, execution: str, version: int) -> Place:
    return Place(tenant, field, f"{execution}/{version}")
