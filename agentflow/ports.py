"""What the services need from the outside, as Protocols named for the need, and the errors they may raise.

Adapters: `agentflow.bus.nats_jetstream` (MessageBus), `control_plane.storage` (EventStore,
EventStream, ShardLeases), `agentflow.artifacts` (ArtifactStore). Every adapter passes the contract suite of its port
in tests/contract.
"""

from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Protocol

import msgspec

from agentflow.contracts.artifact import ArtifactRef
from agentflow.contracts.audit import AuditEntry
from agentflow.contracts.message import Message
from agentflow.contracts.usage import Usage
from agentflow.errors import Conflict, NotFound, Rejected, Unavailable
from agentflow.execution.events import Event, WorkflowRef
from agentflow.execution.state import ExecutionState
from agentflow.ids import ExecutionId, StepPath, TenantId


class BusUnavailable(Unavailable):
    code = "AF2001"

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"The message bus did not take a message: {reason}.",
            hint="Check that NATS runs where AF_NATS_URL points; work goes on by itself once it is back.",
        )


class NobodyListens(BusUnavailable):
    """The bus itself says so: whoever would have answered has no connection to it."""


class StorageUnavailable(Unavailable):
    code = "AF2002"

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"The database did not answer: {reason}.",
            hint="Check that the database runs where AF_DB_DSN points, then send the request again.",
        )


class VersionConflict(Conflict):
    """Another writer appended first. The unique key `(execution, version)` is what refuses; nothing was written."""

    code = "AF1006"

    def __init__(self, execution: ExecutionId, after_version: int) -> None:
        super().__init__(
            f"Execution {execution} is not at version {after_version}.",
            hint="Read the execution again and decide anew; nothing of this batch was written.",
        )


class ShardLost(Conflict):
    """Another process owns the shard now. The lease's epoch, checked in the writing transaction, is what refuses."""

    code = "AF1250"

    def __init__(self, shards: Sequence[int]) -> None:
        named = f"shard {shards[0]}" if len(shards) == 1 else f"shards {', '.join(map(str, shards))}"
        super().__init__(
            f"The lease on {named} has passed to another control plane.",
            hint="Nothing of this batch was written. Whoever holds the lease now goes on with the work.",
        )
        self.shards = tuple(shards)


class Delivery(Protocol):
    """One message handed to us. Until `ack`, it is ours for the consumer's ack wait and no longer."""

    @property
    def message(self) -> Message: ...

    @property
    def pool(self) -> str:
        """The last part of its subject: of what workers say, their pool."""
        ...

    @property
    def deliveries(self) -> int:
        """How often this message was handed out, this time included."""
        ...

    def ack(self) -> None:
        """Done with it. Fire and forget: a lost ack only means a repeat."""
        ...

    def nak(self, delay_s: float = 0.0) -> None:
        """Give it back, to be delivered again after the delay."""
        ...

    def working(self) -> None:
        """Still at it: start the ack wait anew."""
        ...


class Consumer(msgspec.Struct, frozen=True):
    """A durable reader's name and place. Processes that use the same one share its messages."""

    stream: str
    name: str
    subjects: tuple[str, ...]
    in_flight_max: int  # of each process: what it may hold unsettled
    unacked_max: int  # of all processes together, and those that died count until their ack wait is over
    ack_wait_s: float


class Backlog(msgspec.Struct, frozen=True):
    """How much a consumer still has before it: not yet delivered, and delivered but not acked."""

    waiting: int
    unacked: int


class Subscription(Protocol):
    async def stop(self) -> None:
        """Ask for no more. What was delivered may still be acked."""
        ...


class MessageBus(Protocol):
    async def publish(self, subject: str, message: Message, *, dedup_id: str, confirm: bool) -> None:
        """Hand a message to the bus. With `confirm` it returns once the stream has stored it; without, at once.

        Raises `BusUnavailable` when the bus cannot take it now.
        """
        ...

    async def subscribe(self, consumer: Consumer, handler: Callable[[Delivery], None]) -> Subscription:
        """Feed `handler` continuously, never holding more than `in_flight_max` unsettled deliveries."""
        ...

    def replay(self, stream: str, *, from_sequence: int = 1) -> AsyncIterator[Message]:
        """Every stored message from a sequence on, in order, up to what is stored now."""
        ...

    async def backlog(self, consumer: Consumer) -> Backlog:
        """What a consumer has left to do. One that was never made still has all that is stored before it."""
        ...

    async def broadcast(self, subject: str, payload: bytes) -> None:
        """Tell whoever listens now; nothing is stored (heartbeats)."""
        ...

    async def listen(self, subject: str, handler: Callable[[bytes], None]) -> Subscription: ...

    async def listen_pools(self, subject: str, handler: Callable[[str, bytes], None]) -> Subscription:
        """What every pool says there, and which it was: the bus lets nobody speak for another."""
        ...

    async def request(self, subject: str, payload: bytes, *, within_s: float) -> bytes:
        """Ask whoever answers this subject now. Nothing is stored: without an answer nobody knows what became of it.

        Raises `BusUnavailable` when nobody answers, and `NobodyListens` at once where nobody could.
        """
        ...

    async def answer(
        self, subject: str, handler: Callable[[bytes], Awaitable[bytes]], *, group: str = ""
    ) -> Subscription:
        """Answer requests, several at a time; those who name the same group share them.

        A handler that raises leaves its request unanswered.
        """
        ...

    async def answer_pools(
        self, subject: str, handler: Callable[[str, bytes], Awaitable[bytes]], *, group: str = ""
    ) -> Subscription:
        """The same for what every pool asks there."""
        ...


class Startable(msgspec.Struct, frozen=True):
    """A workflow as an execution of it is begun: pinned, with how long it may take and how many may be under way."""

    ref: WorkflowRef
    timeout_ms: int | None = None
    concurrency: int | None = None


class Observation(msgspec.Struct, frozen=True):
    """What one attempt of a step used."""

    path: StepPath
    attempt: int
    at_ms: int
    usage: tuple[Usage, ...]


class NewEvents(msgspec.Struct, frozen=True):
    """Events of one execution, to follow directly after `after_version`. `state` is what they lead to."""

    execution: ExecutionId
    tenant: TenantId
    shard: int
    after_version: int
    events: tuple[Event, ...]
    state: ExecutionState
    open_tasks: tuple[StepPath, ...] = ()  # where it ends: those that were open before, which its end takes along
    costs: tuple[Observation, ...] = ()  # what its steps used, as their results tell
    audits: tuple[AuditEntry, ...] = ()  # who asked for it: `written` once the append has returned


class StoredEvent(msgspec.Struct, frozen=True):
    execution: ExecutionId
    version: int
    event: Event


class EventStore(Protocol):
    async def append(self, batch: Sequence[NewEvents], epochs: Mapping[int, int]) -> None:
        """All of it in one durable transaction, or nothing of it. `epochs`: the leases it is written under, by shard.

        Raises `ShardLost` when one of them is no longer current, `VersionConflict` when another writer was there
        first, `StorageUnavailable` when the outcome may be unknown: the caller forgets what it holds and reads again.
        """
        ...

    async def read(
        self, tenant: TenantId, execution: ExecutionId, *, after_version: int = 0, limit: int | None = None
    ) -> Sequence[StoredEvent]: ...

    async def load(self, execution: ExecutionId, *, tenant: TenantId | None = None) -> ExecutionState | None:
        """The state a shard owner continues from; None where the execution was never committed.

        Asked for a `tenant`, what is another's is not even read: that would take longer than finding nothing.
        """
        ...

    async def load_all(self, executions: Sequence[ExecutionId]) -> Sequence[ExecutionState]:
        """The same for many at once, in no order; those never committed are left out."""
        ...

    def open_executions(self, shards: Sequence[int]) -> AsyncIterator[Sequence[ExecutionId]]:
        """Executions of these shards that have not ended, some at a time: what a new owner takes up."""
        ...


class StreamedEvent(msgspec.Struct, frozen=True):
    position: int
    tenant: TenantId
    execution: ExecutionId
    version: int
    event: Event


class StreamPage(msgspec.Struct, frozen=True):
    events: tuple[StreamedEvent, ...]
    position: int  # where the next page begins; nothing at or below it can appear any more


class EventStream(Protocol):
    """Every event of every execution in one order, the same for whoever reads: what projections follow."""

    async def page(self, *, after: int = 0, limit: int) -> StreamPage: ...


class Lease(msgspec.Struct, frozen=True):
    shard: int
    epoch: int
    holder: str | None  # nobody, after a clean release
    left_s: float  # by the database's clock; not above zero: anybody may take it


class ShardLeases(Protocol):
    """Who may write to which shard. Every change of hands gives a higher epoch, and every append names its own.

    Time is the database's. A holder that has not renewed for a whole lease may be replaced at any moment.
    """

    async def acquire(
        self, shards: Sequence[int], holder: str, *, lease_s: float, steal: bool = False
    ) -> dict[int, int]:
        """Take those that are free, expired or already ours; with `steal`, all. The epochs of what is ours now."""
        ...

    async def renew(self, holder: str, *, lease_s: float) -> dict[int, int]:
        """Hold on to everything that is still ours; the epochs of it. Whatever is missing was lost."""
        ...

    async def release(self, holder: str, shards: Sequence[int] | None = None) -> None:
        """Give back at once, all by default. Appends under the old epochs fail from now on."""
        ...

    async def leases(self) -> Sequence[Lease]: ...


class Shelf(msgspec.Struct, frozen=True):
    """Whose artifacts: a shelf goes as a whole with its owner (an execution, a snapshot). A tenant's are its own."""

    tenant: str
    owner: str


class ShelfUse(msgspec.Struct, frozen=True):
    shelf: Shelf
    artifacts: int
    bytes: int  # as kept: compressed
    newest_ms: int


class ArtifactsUnavailable(Unavailable):
    code = "AF2601"

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"The artifact store did not answer: {reason}.",
            hint="Check that AF_ARTIFACTS_URL names a folder or bucket that this process can read and write.",
        )


class ArtifactLost(NotFound):
    code = "AF1601"

    def __init__(self, shelf: Shelf, ref: ArtifactRef) -> None:
        super().__init__(
            f"A value of {ref.bytes} bytes that belongs to {shelf.owner} is not in the artifact store ({ref.sha256}).",
            hint="Give the control plane and every worker the same AF_ARTIFACTS_URL; else restore it from a backup.",
        )


class ArtifactDamaged(Rejected):
    code = "AF1602"

    def __init__(self, shelf: Shelf, sha256: str, reason: str) -> None:
        super().__init__(
            f"A value that belongs to {shelf.owner} is damaged in the artifact store ({sha256}): {reason}.",
            hint="Restore it from a backup; a step that made it makes it again when it is retried.",
        )


class ArtifactTooLarge(Rejected):
    code = "AF1603"

    def __init__(self, bytes_max: int) -> None:
        super().__init__(
            f"An artifact may have {bytes_max} bytes, and this one has more.",
            hint="Store it elsewhere and pass its address on.",
        )


class InvalidArtifactName(Rejected):
    code = "AF1604"

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{name[:200]!r} cannot be part of an artifact's name.",
            hint="Tenants and owners have up to 128 letters, digits, dots, dashes and underscores, no dot first.",
        )


class ArtifactStore(Protocol):
    """Content by its hash, kept once on each shelf. Raises `ArtifactsUnavailable` where it cannot be reached."""

    async def put(self, shelf: Shelf, content: bytes | AsyncIterable[bytes]) -> ArtifactRef:
        """Durable when this returns. A stream is never held whole."""
        ...

    async def get(self, shelf: Shelf, ref: ArtifactRef) -> bytes:
        """Exactly what was put. Raises `ArtifactLost` or `ArtifactDamaged`, and gives nothing else back."""
        ...

    def stream(self, shelf: Shelf, ref: ArtifactRef) -> AsyncGenerator[bytes, None]:
        """The same in chunks. Only who has taken the last one has the right bytes; before it may raise."""
        ...

    async def drop(self, shelf: Shelf) -> int:
        """Remove all of it; returns how many bytes that freed. A shelf that is not there is empty."""
        ...

    async def shelves(self, tenant: str | None = None) -> Sequence[ShelfUse]: ...

    async def reseal(self, shelf: Shelf) -> int:
        """Encrypt anew what is not under the newest key; returns how many artifacts that were."""
        ...
