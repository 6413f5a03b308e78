"""The events of a snapshot as a record to be decided again: read once, from the first on, and proven by the last."""

from collections.abc import AsyncIterator, Sequence

import msgspec

from agentflow.contracts.snapshot import Line, SnapshotAltered, read_line
from agentflow.errors import Bug
from agentflow.execution.events import decode
from agentflow.ids import ExecutionId, TenantId
from agentflow.ports import StoredEvent


class RecordOfSnapshot:
    """What lies in the artifact store is believed once it was read to its end: so it is, with the last event."""

    def __init__(self, snapshot: str, content: AsyncIterator[bytes]) -> None:
        self._snapshot = snapshot
        self._lines = _lines(content)
        self._version = 0

    async def read(
        self, tenant: TenantId, execution: ExecutionId, *, after_version: int = 0, limit: int | None = None
    ) -> Sequence[StoredEvent]:
        if after_version != self._version:
            raise Bug(f"The snapshot {self._snapshot} was to be read from {after_version}, and is at {self._version}.")
        found: list[StoredEvent] = []
        async for raw in self._lines:
            line = self._parsed(raw)
            if line.kind == "event":
                self._version = line.version
                found.append(StoredEvent(execution, line.version, decode(bytes(line.event))))
                if len(found) == limit:
                    return found
        return found

    def _parsed(self, raw: bytes) -> Line:
        try:
            return read_line(raw)
        except msgspec.DecodeError as error:
            raise SnapshotAltered(self._snapshot, f"a line cannot be read: {error}") from None


async def _lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    begun: list[bytes] = []  # of a line that goes on in the next chunk
    async for chunk in chunks:
        first, *rest = chunk.split(b"\n")
        begun.append(first)
        for line in rest:
            yield b"".join(begun)
            begun = [line]
    if last := b"".join(begun):
        yield last
