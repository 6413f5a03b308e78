"""The record of an execution as a folder that explains itself: what is in one, and whether it is still whole.

    run.json         what it was: workflow, digests, and the digest of every other file
    workflow.yaml    the definition it is pinned to

beside what an execution is now, as the API tells it, with every large value in its place:

    events.jsonl     every event, in order
    state.json       where it stood after the last one
    trace.json       its spans, tool calls among them

or beside a snapshot that was taken of it, byte for byte:

    snapshot.jsonl   events, definitions, costs and state, by the snapshot's own digest
    value-….json     each large value, by its hash

Checked without a control plane.
"""

import hashlib
import json as jsonlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentflow.canonical import canonical
from agentflow.contracts import snapshot as content
from agentflow.errors import Invalid, Problem

if TYPE_CHECKING:
    from agentflow.sdk.client import Client
    from agentflow.sdk.snapshots import Snapshot

FROM_EXECUTION = "agentflow/run/v1"
FROM_SNAPSHOT = "agentflow/run-of-snapshot/v1"
_INDEX, _DEFINITION, _LINES = "run.json", "workflow.yaml", "snapshot.jsonl"


class BundleExists(Invalid):
    code = "AF1529"

    def __init__(self, folder: Path) -> None:
        super().__init__(f"{folder} is there already.", hint="A record is never overwritten: choose another folder.")


class BundleBroken(Invalid):
    code = "AF1530"

    def __init__(self, folder: Path, problems: list[Problem]) -> None:
        super().__init__(
            f"{folder} is not the record that was exported.",
            hint="Take another copy of it; what is named here was changed, lost or added.",
            problems=problems,
        )


async def export_execution(api: "Client", execution: str, folder: Path) -> dict[str, Any]:
    """The index of what was written."""
    import msgspec

    state = await api.execution(execution)
    events = await api.history(execution)
    workflow = await api.workflow(state.workflow.id)
    trace = await api.records.trace(state.trace_id)
    if events[-1].version != state.version:  # it went on between
        state = await api.records.state(execution, events[-1].version)
    files = {
        _DEFINITION: workflow.source.encode(),
        "events.jsonl": b"".join(msgspec.json.encode(event) + b"\n" for event in events),
        "state.json": msgspec.json.encode(state),
        "trace.json": msgspec.json.encode(trace),
    }
    _make(folder)
    for name, written in files.items():
        (folder / name).write_bytes(written)
    index = {
        "format": FROM_EXECUTION,
        "execution": execution,
        "version": state.version,
        "events": len(events),
        "status": state.status,
        "workflow": msgspec.to_builtins(state.workflow),
        "trace_id": state.trace_id,
        "started_at": state.started_at,
        "ended_at": state.ended_at,
    }
    return _indexed(folder, index)


async def export_snapshot(api: "Client", snapshot: "Snapshot", folder: Path) -> dict[str, Any]:
    """The index of what was written. No value and no history is ever held whole."""
    import msgspec

    _make(folder)
    await _written(folder / _LINES, api.snapshots.content(snapshot))
    pinned, end = _told(folder / _LINES)
    (folder / _DEFINITION).write_bytes(pinned.source.encode())
    for ref in end.values:
        await _written(folder / _value_name(ref.sha256), api.snapshots.value(snapshot.id, ref.sha256))
    index = {
        "format": FROM_SNAPSHOT,
        "execution": snapshot.execution_id,
        "version": snapshot.version,
        "events": end.events,
        "status": snapshot.status,
        "workflow": {"id": pinned.id, "name": pinned.name, "version": pinned.version, "digest": pinned.digest},
        "snapshot": {"id": snapshot.id, "digest": snapshot.digest, "taken_at": snapshot.taken_at},
        "lost": msgspec.to_builtins(end.lost),
    }
    return _indexed(folder, index)


def checked(folder: Path) -> tuple[dict[str, Any], list[Problem]]:
    """The index of a record, and everything that is wrong with it."""
    try:
        index = jsonlib.loads((folder / _INDEX).read_text())
        if index["format"] not in (FROM_EXECUTION, FROM_SNAPSHOT):
            return index, [Problem(f"Its format is {index['format']!r}, which this `af` does not know.", path=_INDEX)]
        problems = [] if _digest(index) == index["digest"] else [Problem("It was changed.", path=_INDEX)]
        listed = index["files"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return {}, [Problem(f"It cannot be read: {error}", path=_INDEX)]
    there = {path.name for path in folder.iterdir()} - {_INDEX}
    problems += [Problem("It does not belong to the record.", path=name) for name in sorted(there - set(listed))]
    for name, said in listed.items():
        if name not in there:
            problems.append(Problem("It is missing.", path=name))
        elif _sha256(folder / name) != said["sha256"]:
            problems.append(Problem("It was changed.", path=name))
    if problems:
        return index, problems
    return index, [
        *_wrong_definition(folder, index),
        *(_wrong_lines(folder, index) if index["format"] == FROM_SNAPSHOT else _wrong_events(folder, index)),
    ]


def _wrong_definition(folder: Path, index: dict[str, Any]) -> list[Problem]:
    """Files that are as they were written may still not fit each other."""
    from agentflow.workflow.digest import digest
    from agentflow.workflow.load import read

    loaded = read((folder / _DEFINITION).read_text()).loaded
    if loaded is not None and digest(loaded.workflow) == index["workflow"]["digest"]:
        return []
    return [Problem("It is not the definition that the execution is pinned to.", path=_DEFINITION)]


def _wrong_events(folder: Path, index: dict[str, Any]) -> list[Problem]:
    versions = [jsonlib.loads(line)["version"] for line in (folder / "events.jsonl").read_text().splitlines()]
    if versions == list(range(1, index["version"] + 1)):
        return []
    return [Problem("Events are missing, or are not in order.", path="events.jsonl")]


def _wrong_lines(folder: Path, index: dict[str, Any]) -> list[Problem]:
    if _sha256(folder / _LINES) != index["snapshot"]["digest"]:
        return [Problem("It is not the snapshot with that digest.", path=_LINES)]
    with (folder / _LINES).open("rb") as lines:
        faults = content.faults(lines)
    if faults:
        return [Problem(f"{fault[0].upper()}{fault[1:]}.", path=_LINES) for fault in faults]
    _, end = _told(folder / _LINES)
    names = {ref.sha256: _value_name(ref.sha256) for ref in end.values}
    return [
        Problem("It is not the value that the snapshot names.", path=name)
        for sha256, name in names.items()
        if not (folder / name).exists() or _sha256(folder / name) != sha256
    ]


def _told(lines: Path) -> tuple[content.Pinned, content.End]:
    """The definition that it followed last, and its end."""
    pinned, end = None, None
    with lines.open("rb") as opened:
        for raw in opened:
            if not raw.startswith(b'{"event":'):
                line = content.read_line(raw)
                pinned, end = line.workflow or pinned, line.end or end
    if pinned is None or end is None:
        raise content.SnapshotAltered(str(lines), "its end is missing")
    return pinned, end


def _make(folder: Path) -> None:
    folder.mkdir(parents=True)


async def _written(path: Path, chunks: AsyncIterator[bytes]) -> None:
    with path.open("wb") as out:
        async for chunk in chunks:
            out.write(chunk)


def _indexed(folder: Path, index: dict[str, Any]) -> dict[str, Any]:
    """Written last: a folder without it is one that was not finished."""
    files = {path.name: {"sha256": _sha256(path), "bytes": path.stat().st_size} for path in sorted(folder.iterdir())}
    index = {**index, "files": files}
    index["digest"] = _digest(index)
    (folder / _INDEX).write_text(jsonlib.dumps(index, indent=2, ensure_ascii=False) + "\n")
    return index


def _value_name(sha256: str) -> str:
    return f"value-{sha256}.json"


def _digest(index: dict[str, Any]) -> str:
    return hashlib.sha256(canonical({name: value for name, value in index.items() if name != "digest"})).hexdigest()


def _sha256(path: Path) -> str:
    with path.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
