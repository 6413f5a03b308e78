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
from pathlib import Path
from typing import BinaryIO, Protocol
from weakref import WeakValueDictionary

import msgspec
import structlog

from agentflow.clock import Clock
from agentflow.contracts.agent_state import StateClaimed, StateRef
from agentflow.contracts.artifact import ArtifactRef
from agentflow.contracts.step import TOOLS_AGENT, StepFault
from agentflow.contracts.tool_records import CallSite
from agentflow.ids import TenantId
from agentflow.ports import ArtifactDamaged, ArtifactLost, ArtifactStore, Shelf
from sandbox.policy import MIB
from sandbox.tool_call import SandboxOutcome
from sandbox.workspace import BYTES_MAX, UnsafeArtefact, digest, pack, unpack, usage
from worker.outcome import StepFailed
from worker.states.desk import Fenced

_IN_USE = "in use"
_CLAIM_S_MAX, _SAVE_S = 30.0, 10.0
_LOOK_EVERY_S = 0.5
_CHUNK_BYTES = 1 << 20
_COPY_KEPT_MS = 7 * 24 * 3600 * 1000

log = structlog.get_logger(__name__)


class Left(msgspec.Struct, frozen=True):
    """What the last call left: its digest, and the archive that holds it."""

    digest: str
    archive: ArtifactRef


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
    async def opened(self, site: CallSite, *, within_s: float) -> AsyncIterator["Workspace"]:
        """Raises `StepFailed` before anything runs where the workspace is not what the last call left."""
        ref = StateRef(TenantId(site.tenant_id), TOOLS_AGENT, site.execution_id)
        lock = self._locks.setdefault(ref, asyncio.Lock())
        async with lock:
            claimed = await self._ledger.claim(ref, within_s=min(within_s, _CLAIM_S_MAX))
            place = _Place(self._folder / site.tenant_id / site.execution_id)
            shelf = Shelf(site.tenant_id, site.execution_id)
            before = msgspec.msgpack.decode(claimed.data, type=Left) if claimed.data else None
            workspace = Workspace("", self._bytes_max)
            try:
                await self._prepare(place, shelf, before)
                await asyncio.to_thread(place.mark, _IN_USE)
                workspace.path = str(place.folder)
                yield workspace
            finally:
                # Also where it was cancelled: while its worker lives, nothing that a call left is lost.
                await asyncio.shield(self._finish(workspace, place, shelf, before, ref, claimed))

    async def _finish(
        self,
        workspace: "Workspace",
        place: "_Place",
        shelf: Shelf,
        before: Left | None,
        ref: StateRef,
        claimed: StateClaimed,
    ) -> None:
        saved = False
        try:
            if workspace.path and not workspace.spoiled:
                left = await self._keep(place, shelf, before)
                await self._save(ref, claimed.version, msgspec.msgpack.encode(left))
                saved = True
                await asyncio.to_thread(place.mark, left.digest)
                workspace.digest = left.digest
        finally:
            if not saved:  # the next call begins where this one did
                await self._let_go(ref, claimed)

    async def sweep(self) -> None:
        """Remove copies that nobody used for long: what they hold is kept elsewhere."""
        await asyncio.to_thread(self._sweep)

    async def _prepare(self, place: "_Place", shelf: Shelf, before: Left | None) -> None:
        if not await asyncio.to_thread(place.look) or place.left == _IN_USE:
            await self._fetch(place, shelf, before)
            return
        found = await asyncio.to_thread(digest, str(place.folder), bytes_max=self._bytes_max)
        if before is not None and found == before.digest:
            return
        if found == place.left:  # untouched since we left it; another worker has gone on from there
            await self._fetch(place, shelf, before)
            return
        wanted = "nothing" if before is None else before.digest[:12]
        raise _diverged(f"expected {wanted}, found {found[:12]}")

    async def _fetch(self, place: "_Place", shelf: Shelf, before: Left | None) -> None:
        await asyncio.to_thread(place.begin_anew)
        if before is None:
            return
        with await asyncio.to_thread(tempfile.TemporaryFile) as archive:
            try:
                async for part in self._store.stream(shelf, before.archive):
                    await asyncio.to_thread(archive.write, part)
                archive.seek(0)
                await asyncio.to_thread(unpack, archive, str(place.folder), bytes_max=self._bytes_max)
            except (ArtifactLost, ArtifactDamaged, UnsafeArtefact) as error:
                await asyncio.to_thread(place.remove)
                raise _diverged(f"it cannot be brought back: {error.message}") from error
        found = await asyncio.to_thread(digest, str(place.folder), bytes_max=self._bytes_max)
        if found != before.digest:
            raise _diverged(f"expected {before.digest[:12]}, brought back {found[:12]}")
        log.info("workspace.fetched", execution=shelf.owner, digest=found[:12], bytes=before.archive.bytes)

    async def _keep(self, place: "_Place", shelf: Shelf, before: Left | None) -> Left:
        found = await asyncio.to_thread(digest, str(place.folder), bytes_max=self._bytes_max)
        if before is not None and found == before.digest:
            return before
        with await asyncio.to_thread(tempfile.TemporaryFile) as archive:
            await asyncio.to_thread(pack, str(place.folder), archive, bytes_max=self._bytes_max)
            archive.seek(0)
            return Left(found, await self._store.put(shelf, _chunks(archive)))

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
    """One call's hold on a folder. `digest` is what the call left, once that is kept."""

    def __init__(self, path: str, bytes_max: int) -> None:
        self.path = path
        self.digest: str | None = None
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


def _diverged(how: str) -> StepFailed:
    return StepFailed(StepFault("workspace_diverged", f"The workspace is not what the last call left: {how}."))
