"""The folders of executions: one owner at a time, verified before each call, kept after it, on whatever worker.

A workspace belongs to its execution and not to the worker that happens to have it: after every call (also one that
was ended by its timeout) what changed is kept in the artifact store, and its digest as a state of the agent `tools`,
whose version is the fence between workers. The next call begins with exactly that: here if it is here, fetched if it
is not, rolled back if a call broke off; and where it was altered by anybody else, no call begins.
"""

import asyncio
import secrets
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Protocol
from weakref import WeakValueDictionary

import msgspec
import structlog

from agentflow import limits
from agentflow.artifacts.workspaces import sheets_of, shelf_of
from agentflow.clock import Clock
from agentflow.contracts.agent_state import StateClaimed, StateRef
from agentflow.contracts.artifact import ArtifactRef
from agentflow.contracts.step import TOOLS_AGENT, StepFault
from agentflow.contracts.tool_records import CallSite
from agentflow.contracts.workspace import SheetHead, WorkspaceLeft, head_of, shelf_owner, written_head
from agentflow.ids import TenantId
from agentflow.ports import ArtifactDamaged, ArtifactLost, ArtifactStore, ArtifactsUnavailable, Shelf
from sandbox.policy import MIB
from sandbox.tool_call import SandboxOutcome
from sandbox.workspace import BYTES_MAX, Seen, UnsafeArtefact, changes, digest_of, look, pack, unpack, usage
from worker.outcome import StepFailed
from worker.states.desk import Fenced

_IN_USE = "in use"
_CLAIM_S_MAX, _SAVE_S = 30.0, 10.0
_LOOK_EVERY_S = 0.5
_CHUNK_BYTES = 1 << 20
_SHELVES_KEPT = 2
_NOT_YET = ArtifactRef("", 0)
_COPY_KEPT_MS = 7 * 24 * 3600 * 1000

log = structlog.get_logger(__name__)


class Ledger(Protocol):
    """Where it is written what the last call left; `worker.states.desk` asks the control plane."""

    async def claim(self, ref: StateRef, *, within_s: float) -> StateClaimed: ...

    async def save(
        self, ref: StateRef, version: int, data: bytes, checkpoint_type: str, *, release: bool, within_s: float
    ) -> int: ...


class Workspaces:
    def __init__(
        self, folder: Path, *, ledger: Ledger, store: ArtifactStore, clock: Clock, bytes_max: int = BYTES_MAX
    ) -> None:
        self._folder = folder
        self._ledger = ledger
        self._store = store
        self._clock = clock
        self._bytes_max = bytes_max
        self._locks: WeakValueDictionary[StateRef, asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def passing(self) -> AsyncIterator["Workspace"]:
        """A folder for a call outside of any execution: gone with it."""
        folder = await asyncio.to_thread(tempfile.mkdtemp, prefix="agentflow-workspace-")
        try:
            yield Workspace(folder, self._bytes_max)
        finally:
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)

    @asynccontextmanager
    async def opened(
        self, site: CallSite, *, within_s: float, known: WorkspaceLeft | None = None
    ) -> AsyncIterator["Workspace"]:
        """Raises `StepFailed` before anything runs where the workspace is not what the last call left.

        `known` is what the record says was left; in a fork, before its first call, nobody else can say it.
        """
        ref = StateRef(TenantId(site.tenant_id), TOOLS_AGENT, site.execution_id)
        lock = self._locks.setdefault(ref, asyncio.Lock())
        async with lock:
            claimed = await self._ledger.claim(ref, within_s=min(within_s, _CLAIM_S_MAX))
            turn = _Turn(ref, claimed, _Place(self._folder / site.tenant_id / site.execution_id))
            workspace = Workspace("", self._bytes_max)
            try:
                turn.before = _newest(claimed, known)
                turn.seen = await self._prepare(turn)
                await asyncio.to_thread(turn.place.mark, _IN_USE)
                workspace.path = str(turn.place.folder)
                yield workspace
            finally:
                # Also where it was cancelled: while its worker lives, nothing that a call left is lost.
                await asyncio.shield(self._finish(workspace, turn))

    async def _finish(self, workspace: "Workspace", turn: "_Turn") -> None:
        saved = False
        try:
            if workspace.path and not workspace.spoiled:
                left = await self._keep(turn)
                await self._save(turn.ref, turn.claimed.version, msgspec.msgpack.encode(left))
                saved = True
                await asyncio.to_thread(turn.place.mark, left.digest)
                workspace.left = left
                await self._forget(turn, left)
        finally:
            if not saved:  # the next call begins where this one did
                await self._let_go(turn.ref, turn.claimed)

    async def sweep(self) -> None:
        """Remove copies that nobody used for long: what they hold is kept elsewhere."""
        await asyncio.to_thread(self._sweep)

    async def _prepare(self, turn: "_Turn") -> dict[str, Seen]:
        """What is there when the call begins."""
        place, before = turn.place, turn.before
        if not await asyncio.to_thread(place.look) or place.left == _IN_USE:
            return await self._fetch(turn)
        seen = await self._look(place)
        found = digest_of(seen)
        if before is not None and found == before.digest:
            return seen
        if found == place.left:  # untouched since we left it; another worker has gone on from there
            return await self._fetch(turn)
        wanted = "nothing" if before is None else before.digest[:12]
        raise _diverged(f"expected {wanted}, found {found[:12]}")

    async def _fetch(self, turn: "_Turn") -> dict[str, Seen]:
        place, before = turn.place, turn.before
        await asyncio.to_thread(place.begin_anew)
        if before is None:
            return {}
        shelf = shelf_of(turn.ref.tenant, turn.ref.instance, before)
        try:
            sheets = await sheets_of(self._store, shelf, before)
            for sheet in sheets:
                await self._put_on(shelf, sheet, place, is_bare=not before.number)
        except (ArtifactLost, ArtifactDamaged, UnsafeArtefact) as error:
            await asyncio.to_thread(place.remove)
            raise _diverged(f"it cannot be brought back: {error.message}") from error
        seen = await self._look(place)
        found = digest_of(seen)
        if found != before.digest:
            raise _diverged(f"expected {before.digest[:12]}, brought back {found[:12]}")
        log.info("workspace.fetched", execution=turn.ref.instance, digest=found[:12], sheets=len(sheets))
        return seen

    async def _put_on(self, shelf: Shelf, sheet: ArtifactRef, place: "_Place", *, is_bare: bool) -> None:
        """Unpack one sheet over those below it. One from before there were sheets has no head."""
        with await asyncio.to_thread(tempfile.TemporaryFile) as archive:
            async for part in self._store.stream(shelf, sheet):
                await asyncio.to_thread(archive.write, part)
            archive.seek(0)
            try:
                head = SheetHead() if is_bare else head_of(archive.readline())
            except msgspec.DecodeError as error:
                raise UnsafeArtefact("a sheet", f"it has no head ({error})") from None
            over = head.below is not None
            folder = str(place.folder)
            await asyncio.to_thread(unpack, archive, folder, bytes_max=self._bytes_max, gone=head.gone, over=over)

    async def _keep(self, turn: "_Turn") -> WorkspaceLeft:
        """A sheet with what the call changed; or with everything, where those below are too many or too large."""
        now = await self._look(turn.place)
        found = changes(turn.seen, now)
        if turn.before is not None and not found:
            return turn.before
        content = sum(each.entry.size for each in now.values())
        below = _grown(turn.before, found.bytes, content)
        head, only = SheetHead(), None
        if below is not None:
            head, only = SheetHead(below.archive, found.gone), found.new
        with await asyncio.to_thread(tempfile.TemporaryFile) as archive:
            await asyncio.to_thread(archive.write, written_head(head))
            folder = str(turn.place.folder)
            await asyncio.to_thread(pack, folder, archive, bytes_max=self._bytes_max, only=only)
            archive.seek(0)
            left = _next(turn.before, below, digest_of(now), found.bytes if below else content)
            shelf = shelf_of(turn.ref.tenant, turn.ref.instance, left)
            return msgspec.structs.replace(left, archive=await self._store.put(shelf, _chunks(archive)))

    async def _forget(self, turn: "_Turn", left: WorkspaceLeft) -> None:
        """The shelf before the one before, once another is begun: so what versions take is bounded."""
        if turn.before is not None and turn.before.shelf < left.shelf and left.shelf > _SHELVES_KEPT:
            old = shelf_owner(turn.ref.instance, left.shelf - _SHELVES_KEPT)
            try:
                await self._store.drop(Shelf(turn.ref.tenant, old))
            except ArtifactsUnavailable as error:
                log.warning("workspace.not_forgotten", execution=turn.ref.instance, reason=error.message)

    async def _look(self, place: "_Place") -> dict[str, Seen]:
        return await asyncio.to_thread(look, str(place.folder), bytes_max=self._bytes_max)

    async def _save(self, ref: StateRef, version: int, data: bytes) -> None:
        try:
            await self._ledger.save(ref, version, data, "step", release=True, within_s=_SAVE_S)
        except Fenced:
            raise _diverged("another worker has taken it over") from None

    async def _let_go(self, ref: StateRef, claimed: StateClaimed) -> None:
        try:
            await self._ledger.save(ref, claimed.version, claimed.data, "step", release=True, within_s=_SAVE_S)
        except (Fenced, StepFailed):
            log.warning("workspace.not_released", execution=ref.instance)  # it is taken over once we are gone

    def _sweep(self) -> None:
        for mark in self._folder.glob("*/*/mark"):
            if self._clock.now_ms() - mark.stat().st_mtime * 1000 > _COPY_KEPT_MS:
                _Place(mark.parent).remove()


class Workspace:
    """One call's hold on a folder. `left` is what the call left, once that is kept."""

    def __init__(self, path: str, bytes_max: int) -> None:
        self.path = path
        self.left: WorkspaceLeft | None = None
        self.spoiled = False  # it holds more than is kept
        self._bytes_max = bytes_max

    async def bounded(self, running: Awaitable[SandboxOutcome]) -> SandboxOutcome:
        """The call, ended where it fills the machine's disk by way of this folder."""
        call = asyncio.ensure_future(running)
        try:
            while not (await asyncio.wait([call], timeout=_LOOK_EVERY_S))[0]:
                if await asyncio.to_thread(usage, self.path) > self._bytes_max:
                    break
        finally:
            if not call.done():
                call.cancel()
                await asyncio.gather(call, return_exceptions=True)
        if call.cancelled():
            self.spoiled = True
            full = f"The tool wrote more than {self._bytes_max // MIB} MiB into the workspace."
            raise StepFailed(StepFault("disk_exceeded", full))
        return await call


@dataclass(slots=True)
class _Turn:
    """One call's turn with a workspace: from what was left before it to what it leaves."""

    ref: StateRef
    claimed: StateClaimed
    place: "_Place"
    before: WorkspaceLeft | None = None
    seen: dict[str, Seen] = field(default_factory=dict)


class _Mark(msgspec.Struct, frozen=True):
    folder: str
    left: str  # the digest, or that a call has it


class _Place:
    """The copy on this machine, and a mark that says which folder it is and what it should be.

    Each copy that is made anew has a new name: a sandbox that was started for the old one can never be given this one.
    """

    def __init__(self, home: Path) -> None:
        self._home = home
        self._file = home / "mark"
        self._mark: _Mark | None = None

    @property
    def folder(self) -> Path:
        return self._home / (self._mark.folder if self._mark is not None else "none")

    @property
    def left(self) -> str | None:
        return self._mark.left if self._mark is not None else None

    def look(self) -> bool:
        """Whether there is a copy at all."""
        try:
            self._mark = msgspec.json.decode(self._file.read_bytes(), type=_Mark)
        except (OSError, msgspec.DecodeError):
            return False
        return self.folder.is_dir()

    def mark(self, left: str) -> None:
        self._mark = _Mark(self.folder.name, left)
        draft = self._home / "mark.draft"
        draft.write_bytes(msgspec.json.encode(self._mark))
        draft.replace(self._file)

    def begin_anew(self) -> None:
        self.remove()
        self._mark = _Mark(secrets.token_hex(8), _IN_USE)
        self.folder.mkdir(mode=0o700, parents=True)
        self._home.chmod(0o700)

    def remove(self) -> None:
        shutil.rmtree(self._home, ignore_errors=True)


async def _chunks(archive: BinaryIO) -> AsyncIterator[bytes]:
    while part := await asyncio.to_thread(archive.read, _CHUNK_BYTES):
        yield part


def _newest(claimed: StateClaimed, known: WorkspaceLeft | None) -> WorkspaceLeft | None:
    """The ledger may be ahead of the record, while the outcome of a call is under way. It is never behind."""
    if not claimed.data:
        return known
    ledger = msgspec.msgpack.decode(claimed.data, type=WorkspaceLeft)
    if known is not None and known.number >= ledger.number and known.digest != ledger.digest:
        raise _diverged(f"version {known.number} is on record, and version {ledger.number} was found")
    return ledger


def _grown(before: WorkspaceLeft | None, new: int, content: int) -> WorkspaceLeft | None:
    """What a sheet with the changes may lie on; None where it has to hold everything."""
    if before is None or not before.number or before.sheets >= limits.WORKSPACE_SHEETS_MAX:
        return None
    most = max(limits.WORKSPACE_SHEETS_BYTES_MIN, limits.WORKSPACE_OUTGROWN * content)
    if before.bytes + new > most or before.shelved + new > limits.WORKSPACE_SHELF_BYTES_MAX:
        return None
    return before


def _next(before: WorkspaceLeft | None, below: WorkspaceLeft | None, digest: str, new: int) -> WorkspaceLeft:
    """The version after `before`, but for its archive."""
    number = 1 if before is None else before.number + 1
    if below is not None:
        return msgspec.structs.replace(
            below,
            digest=digest,
            number=number,
            sheets=below.sheets + 1,
            bytes=below.bytes + new,
            shelved=below.shelved + new,
        )
    shelf, shelved = (1, 0) if before is None else (before.shelf, before.shelved)
    if not shelf or shelved + new > limits.WORKSPACE_SHELF_BYTES_MAX:
        shelf, shelved = shelf + 1, 0
    return WorkspaceLeft(digest, _NOT_YET, number, bytes=new, shelf=shelf, shelved=shelved + new)


def _diverged(how: str) -> StepFailed:
    return StepFailed(StepFault("workspace_diverged", f"The workspace is not what the last call left: {how}."))
