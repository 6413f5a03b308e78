"""`af snapshot`: the whole record of an execution as a folder that explains itself, and whether one is still whole.

    run.json         what it was: workflow, digests, input, output, and the digest of every other file
    workflow.yaml    the definition it is pinned to
    events.jsonl     every event, in order
    state.json       where it stood after the last one
    trace.json       its spans, tool calls among them

Made from what the API answers, so it holds what whoever exports it may see; verified without a control plane.
"""

import asyncio
import hashlib
import json as jsonlib
from pathlib import Path
from typing import Annotated, Any

import typer

from agentflow.canonical import canonical
from agentflow.cli.orders import ExecutionArgument
from agentflow.cli.output import JsonFlag, print_json, stdout
from agentflow.errors import Invalid, Problem

app = typer.Typer(no_args_is_help=True, help="Keep the record of an execution as a folder, and check one.")

FORMAT = "agentflow/run/v1"
_INDEX = "run.json"


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


@app.command()
def export(
    execution: ExecutionArgument,
    to: Annotated[
        Path | None, typer.Option("--to", help="The folder to make; else the id's own.", show_default=False)
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Write the record of an execution into a new folder.

    \b
    Examples:
      af snapshot export exec_01JD3ZJ4W3E5V8Q2N7M0K1T9XA
      af snapshot export exec_01JD3ZJ4W3E5V8Q2N7M0K1T9XA --to records/march
    """
    folder = to or Path(execution)
    if folder.exists():
        raise BundleExists(folder)
    index, files = asyncio.run(_collected(execution))
    folder.mkdir(parents=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    (folder / _INDEX).write_text(jsonlib.dumps(index, indent=2, ensure_ascii=False) + "\n")
    if json:
        print_json(index)
    else:
        stdout().print(f"{folder}: {index['events']} events, digest {index['digest']}")


@app.command()
def verify(
    folder: Annotated[Path, typer.Argument(help="A folder that `af snapshot export` made.", show_default=False)],
    json: JsonFlag = False,
) -> None:
    """Check that a record is whole and unchanged. Needs no control plane.

    \b
    Examples:
      af snapshot verify exec_01JD3ZJ4W3E5V8Q2N7M0K1T9XA
    """
    index, problems = checked(folder)
    if problems:
        raise BundleBroken(folder, problems)
    if json:
        print_json({"execution": index["execution"], "digest": index["digest"], "events": index["events"]})
    else:
        stdout().print(f"whole: {index['execution']}, {index['events']} events, digest {index['digest']}")


async def _collected(execution: str) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The index of a record and its other files, by name."""
    import msgspec

    from agentflow.cli.connection import control_plane

    async with control_plane() as api:
        state = await api.execution(execution)
        events = await api.history(execution)
        workflow = await api.workflow(state.workflow.id)
        trace = await api.records.trace(state.trace_id)
        if events[-1].version != state.version:  # it went on between
            state = await api.records.state(execution, events[-1].version)
    files = {
        "workflow.yaml": workflow.source.encode(),
        "events.jsonl": b"".join(msgspec.json.encode(event) + b"\n" for event in events),
        "state.json": msgspec.json.encode(state),
        "trace.json": msgspec.json.encode(trace),
    }
    index: dict[str, Any] = {
        "format": FORMAT,
        "execution": execution,
        "version": state.version,
        "events": len(events),
        "status": state.status,
        "workflow": msgspec.to_builtins(state.workflow),
        "trace_id": state.trace_id,
        "started_at": state.started_at,
        "ended_at": state.ended_at,
        "files": {name: {"sha256": _sha256(content), "bytes": len(content)} for name, content in files.items()},
    }
    index["digest"] = _digest(index)
    return index, files


def checked(folder: Path) -> tuple[dict[str, Any], list[Problem]]:
    """The index of a record, and everything that is wrong with it."""
    try:
        index = jsonlib.loads((folder / _INDEX).read_text())
        if index["format"] != FORMAT:
            return index, [Problem(f"Its format is {index['format']!r}, not {FORMAT!r}.", path=_INDEX)]
        problems = [] if _digest(index) == index["digest"] else [Problem("It was changed.", path=_INDEX)]
        listed = index["files"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return {}, [Problem(f"It cannot be read: {error}", path=_INDEX)]
    there = {path.name for path in folder.iterdir()} - {_INDEX}
    problems += [Problem("It does not belong to the record.", path=name) for name in sorted(there - set(listed))]
    for name, said in listed.items():
        if name not in there:
            problems.append(Problem("It is missing.", path=name))
        elif _sha256((folder / name).read_bytes()) != said["sha256"]:
            problems.append(Problem("It was changed.", path=name))
    return index, problems or _contradictions(folder, index)


def _contradictions(folder: Path, index: dict[str, Any]) -> list[Problem]:
    """Files that are as they were written, and do not fit each other."""
    from agentflow.workflow.digest import digest
    from agentflow.workflow.load import read

    problems = []
    loaded = read((folder / "workflow.yaml").read_text()).loaded
    if loaded is None or digest(loaded.workflow) != index["workflow"]["digest"]:
        problems.append(Problem("It is not the definition that the execution is pinned to.", path="workflow.yaml"))
    versions = [jsonlib.loads(line)["version"] for line in (folder / "events.jsonl").read_text().splitlines()]
    if versions != list(range(1, index["version"] + 1)):
        problems.append(Problem("Events are missing, or are not in order.", path="events.jsonl"))
    return problems


def _digest(index: dict[str, Any]) -> str:
    return _sha256(canonical({name: value for name, value in index.items() if name != "digest"}))


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
