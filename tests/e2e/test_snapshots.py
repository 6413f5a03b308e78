"""Snapshots on the real platform: taken, read back, replayed, found out when touched, kept when the history goes."""

import asyncio
import hashlib
import json
import subprocess
import sys
from pathlib import Path

import httpx
import msgspec
import pytest

from agentflow.cli.bundles import _indexed, checked
from agentflow.contracts.snapshot import SnapshotAltered, faults, read_line
from agentflow.devstack.platform import EmbeddedPlatform, embedded_platform
from agentflow.errors import AgentFlowError, Conflict, NotFound
from agentflow.sdk.blocking import BlockingClient
from agentflow.sdk.client import Client
from agentflow.settings import inherited_environment
from agentflow.testing import eventually
from tests.e2e.test_replay import ran, text

AGENTS = """
apiVersion: agentflow/v1
kind: Agents
agents:
  maker: {type: function, call: "kept_agents:make"}
"""
CODE = """
def make(input, context):
    context.spent("model", dollars="0.25", input=100, output=10)
    return {"text": input["text"] * input["times"], "n": 1.0}
"""
WORKFLOW = """
apiVersion: agentflow/v1
kind: Workflow
metadata: {name: kept, version: 1.0.0}
spec:
  planner: fsm
  fsm:
    initial_state: make
    final_states: [end]
    states:
      make:
        agent: maker
        input: {text: "${input.text}", times: "${input.times}"}
        transitions: [{condition: "size(output.text) > 3", to: end}, {to: small}]
      small: {fail: {code: small, message: Too small.}}
      end: {succeed: {text: "${steps.make.output.text}", n: "${steps.make.output.n}"}}
"""
CANARY = "canary-7f3a"


@pytest.fixture
def agents_file(tmp_path: Path) -> Path:
    (tmp_path / "agents.yaml").write_text(AGENTS)
    (tmp_path / "kept_agents.py").write_text(CODE)
    return tmp_path / "agents.yaml"


async def made(api: Client, text: str = "abcd", times: int = 1) -> str:
    await api.push_workflow(WORKFLOW)
    done = await api.execute("kept", {"text": text, "times": times}, wait=True)
    assert done.status == "completed", done.error
    return done.execution_id


async def read(chunks) -> bytes:
    return b"".join([chunk async for chunk in chunks])


def upkeep(home: Path, *words: str, **variables: str) -> str:
    """`af` as whoever runs the machine: without a control plane."""
    environment = {**inherited_environment(), "AF_HOME": str(home), **variables}
    af = Path(sys.executable).with_name("af")
    done = subprocess.run([af, *words], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


async def test_a_snapshot_is_taken_once_listed_and_read_back_with_its_digest(api):
    await api.push_workflow(text("snapped", "1.0.0"))
    execution = await ran(api, "snapped", 3)

    taken = await api.snapshots.take(execution)
    again = await api.snapshots.take(execution)

    shown = await api.execution(execution)
    content = await read(api.snapshots.content(taken))
    lines = [read_line(line) for line in content.splitlines()]
    assert again == taken == await api.snapshots.show(taken.id)
    assert (taken.version, taken.status, taken.ended_at) == (shown.version, "completed", shown.ended_at)
    assert (hashlib.sha256(content).hexdigest(), len(content)) == (taken.digest, taken.bytes)
    assert faults(content.splitlines()) == []
    history = await api.history(execution)
    assert [json.loads(bytes(line.event))["type"] for line in lines if line.kind == "event"] == [
        event.type for event in history
    ]
    (pinned,) = [line.workflow for line in lines if line.workflow]
    assert (pinned.source, pinned.digest) == (text("snapped", "1.0.0"), shown.workflow.digest)
    state = json.loads(next(bytes(line.state) for line in lines if line.kind == "state"))
    assert (state["status"], state["output"]) == ("completed", shown.output)
    assert lines[0].snapshot.trace == shown.trace_id
    of_it = await api.snapshots.list(execution=execution)
    assert (of_it.items, of_it.total_count) == ([taken], 1)
    assert [one.id async for one in api.snapshots.iterate(workflow="snapped")].count(taken.id) == 1
    assert (await api.snapshots.list(workflow="snapped@9.9.9")).items == []


async def test_every_version_of_an_execution_has_a_snapshot_of_its_own_and_the_list_is_read_in_pages(api):
    await api.push_workflow(text("snapped", "1.0.0"))
    execution = await ran(api, "snapped", 3)

    versions = [await api.snapshots.take(execution, version=number) for number in (1, 3, 2)]

    assert [one.version for one in versions] == [1, 3, 2]
    assert len({one.digest for one in versions}) == 3
    assert (versions[0].status, versions[0].ended_at) == ("running", None)
    first = await api.snapshots.list(execution=execution, limit=2)
    rest = await api.snapshots.list(execution=execution, limit=2, cursor=first.next_cursor)
    assert [*first.items, *rest.items] == versions[::-1]
    assert (rest.next_cursor, first.total_count) == (None, 3)
    with pytest.raises(NotFound):
        await api.snapshots.take(execution, version=1_000)


async def test_a_request_that_is_sent_again_is_about_the_version_it_was_about_at_first(api):
    await api.push_workflow(text("snapped", "1.0.0"))
    execution = (await api.execute("snapped", {"n": 3})).execution_id
    before = await api.snapshots.take(execution, key="once " + execution)
    await api.signal(execution, "go", {"n": 3})

    again = await api.snapshots.take(execution, key="once " + execution)
    now = await api.snapshots.take(execution)

    assert again == before
    assert now.version > before.version
    with pytest.raises(Conflict):
        await api.snapshots.take(execution, version=1, key="once " + execution)


async def test_over_http_a_snapshot_has_its_digest_as_etag_and_is_not_sent_twice(api, http):
    await api.push_workflow(text("snapped", "1.0.0"))
    execution = await ran(api, "snapped", 3)

    new = await http.post(f"/api/v1/executions/{execution}/snapshots", json={})
    there = await http.post(f"/api/v1/executions/{execution}/snapshots")
    taken = new.json()
    shown = await http.get(new.headers["location"])
    content = await http.get(f"/api/v1/snapshots/{taken['id']}/content")
    known = {"If-None-Match": content.headers["etag"]}

    assert (new.status_code, there.status_code) == (201, 200)
    assert shown.headers["etag"] == content.headers["etag"] == f'"{taken["digest"]}"'
    assert content.headers["content-type"] == "application/jsonl"
    assert content.headers["content-length"] == str(taken["bytes"]) == str(len(content.content))
    assert (await http.get(f"/api/v1/snapshots/{taken['id']}/content", headers=known)).status_code == 304
    assert (await http.get(f"/api/v1/snapshots/{taken['id']}", headers=known)).status_code == 304
    for sha256 in ("0" * 64, "no-hash"):
        assert (await http.get(f"/api/v1/snapshots/{taken['id']}/values/{sha256}")).status_code == 404

    async def recorded() -> list[str]:
        found = await api.audit.list({"action": "snapshots.take", "resource": taken["id"]})
        return [link.record["details"]["digest"] for link in found.items]

    async def both() -> bool:
        return await recorded() == [taken["digest"]] * 2

    await eventually(both)


async def test_an_execution_is_replayed_exactly_from_its_snapshot_also_by_another_version(api, af):
    await api.push_workflow(text("resnapped", "1.0.0"))
    await api.push_workflow(text("resnapped", "1.1.0", least=5))
    started = await api.execute("resnapped@1.0.0", {"n": 3})
    await api.signal(started.execution_id, "go", {"n": 3})
    async for _ in api.follow(started.execution_id):
        pass
    taken = await api.snapshots.take(started.execution_id)

    of_history = await api.records.replay(started.execution_id)
    of_snapshot = await api.records.replay(taken.id)
    other = await api.records.replay(taken.id, against="1.1.0")
    many = await api.records.finished(
        (await api.records.replay_many("resnapped", executions=[taken.id, started.execution_id])).id
    )

    assert of_snapshot == of_history
    assert of_snapshot.identical
    assert (other.identical, other.divergence.expected_data) != (True, None)
    assert (many.result["replayed"], many.result["identical"]) == (2, 2)
    assert "are the same" in af("replay", taken.id).stdout
    with pytest.raises(NotFound):
        await api.records.replay("snap_none", workflow="resnapped")


async def test_af_takes_lists_shows_exports_verifies_and_deletes(api, af, tmp_path):
    await api.push_workflow(text("snapped", "1.0.0"))
    execution = await ran(api, "snapped", 3)

    taken = json.loads(af("snapshot", "take", execution, "--json").stdout)
    assert taken["id"] in af("snapshot", "take", execution).stdout
    assert taken["id"] in af("snapshot", "list", "--execution", execution).stdout
    assert taken["digest"] in af("snapshot", "show", taken["id"]).stdout
    assert json.loads(af("snapshot", "list", "--execution", execution, "--json").stdout)["items"] == [taken]
    af("snapshot", "export", taken["id"], "--to", "kept")
    folder = tmp_path / "kept"
    assert hashlib.sha256((folder / "snapshot.jsonl").read_bytes()).hexdigest() == taken["digest"]
    assert af("snapshot", "verify", "kept").stdout.startswith(f"whole: {execution}")

    lines = (folder / "snapshot.jsonl").read_bytes()
    (folder / "snapshot.jsonl").write_bytes(lines.replace(b"snapped", b"trapped", 1))
    broken = af("snapshot", "verify", "kept", may_fail=True)
    assert (broken.returncode, "snapshot.jsonl: It was changed." in broken.stderr) == (2, True)
    (folder / "snapshot.jsonl").write_bytes(b"".join(lines.splitlines(keepends=True)[:-1]))
    made_anew(folder)  # whoever changes the index too cannot change the digest that the snapshot is known by
    assert "is not the snapshot with that digest" in af("snapshot", "verify", "kept", may_fail=True).stderr

    assert af("snapshot", "delete", taken["id"]).stdout == f"{taken['id']} is gone.\n"
    assert af("snapshot", "show", taken["id"], may_fail=True).returncode == 2
    assert (await api.snapshots.take(execution)).digest == taken["digest"]


def made_anew(folder: Path) -> None:
    """The index, as somebody would make it who changes a record and knows how it is written."""
    index = json.loads((folder / "run.json").read_text())
    (folder / "run.json").unlink()
    _indexed(folder, {name: value for name, value in index.items() if name not in ("files", "digest")})


async def test_programs_without_an_event_loop_have_the_same(api, platform):
    await api.push_workflow(text("snapped", "1.0.0"))
    execution = await ran(api, "snapped", 3)

    def blocking() -> tuple[bytes, list[str], str]:
        with BlockingClient(platform.api_url, api_key=platform.api_key) as client:
            taken = client.take_snapshot(execution, version=2)
            content = b"".join(client.snapshot_content(client.snapshot(taken.id)))
            listed = [one.id for one in client.snapshots(execution=execution)]
            client.delete_snapshot(taken.id)
            return content, listed, taken.digest

    content, listed, digest = await asyncio.to_thread(blocking)
    assert hashlib.sha256(content).hexdigest() == digest
    assert len(listed) == 1
    assert (await api.snapshots.list(execution=execution)).items == []


async def test_another_tenant_finds_nothing_of_it(api, http, platform):
    await api.push_workflow(text("snapped", "1.0.0"))
    execution = await ran(api, "snapped", 3)
    taken = await api.snapshots.take(execution)
    tenant = await http.post("/api/v1/tenants", json={"id": f"beside-{execution[-8:].lower()}"})

    headers = {"Authorization": f"Bearer {tenant.json()['admin']['api_key']}"}
    async with httpx.AsyncClient(base_url=platform.api_url, trust_env=False, headers=headers) as theirs:
        answers = [
            await theirs.get(f"/api/v1/snapshots/{taken.id}"),
            await theirs.get(f"/api/v1/snapshots/{taken.id}/content"),
            await theirs.get(f"/api/v1/snapshots/{taken.id}/values/{'0' * 64}"),
            await theirs.delete(f"/api/v1/snapshots/{taken.id}"),
            await theirs.post(f"/api/v1/executions/{execution}/snapshots", json={"version": 0}),
        ]
        listed = await theirs.get("/api/v1/snapshots", params={"filter[execution]": execution})

    assert [answer.status_code for answer in answers] == [404] * 5
    assert (listed.json()["items"], listed.json()["total_count"]) == ([], 0)
    assert await api.snapshots.show(taken.id) == taken


async def test_it_outlives_the_history_with_its_large_values_and_goes_with_its_own_retention(tmp_path, agents_file):
    home = tmp_path / "home"
    ring = {"AF_ENCRYPTION_KEYS": upkeep(home, "keys", "new", "k1")}
    async with (
        embedded_platform(home, agents_file=agents_file, extra_env=ring) as platform,
        Client(platform.api_url, api_key=platform.api_key) as api,
    ):
        execution = await made(api, CANARY, 40_000)
        before = await api.records.replay(execution)
        taken = await api.snapshots.take(execution)

        upkeep(home, "retention", "run", **ring, AF_RETENTION="history=0d")

        with pytest.raises(NotFound):
            await api.execution(execution)
        content = await read(api.snapshots.content(taken))
        lines = [read_line(line) for line in content.splitlines()]
        end = lines[-1].end
        values = [json.loads(await read(api.snapshots.value(taken.id, ref.sha256))) for ref in end.values]
        assert hashlib.sha256(content).hexdigest() == taken.digest
        assert CANARY * 40_000 in [value.get("text") if isinstance(value, dict) else value for value in values]
        assert end.lost == []
        assert [(line.cost.path, line.cost.usage.microdollars) for line in lines if line.cost] == [("make", 250_000)]
        after = await api.records.replay(taken.id)
        assert (after, after.identical) == (before, True)
        files = [path.read_bytes() for path in (home / "artifacts" / "default" / taken.id).glob("*.zst")]
        assert len(files) == 1 + len(end.values)
        assert not any(CANARY.encode() in written for written in files)
        with pytest.raises(NotFound):
            await api.snapshots.take(execution)
        verify_what_is_exported(home, tmp_path / "kept", taken.id, platform)

        gone = json.loads(upkeep(home, "retention", "run", "--json", **ring, AF_RETENTION="snapshot=0d"))

        assert [removal["ids"] for removal in gone["removals"] if removal["kind"] == "snapshot"] == [[taken.id]]
        with pytest.raises(NotFound):
            await api.snapshots.show(taken.id)
        assert not list((home / "artifacts").rglob("*.zst"))


def verify_what_is_exported(home: Path, folder: Path, snapshot: str, platform: EmbeddedPlatform) -> None:
    """With its large values; one that is touched is named, without a control plane."""
    there = {"AF_API_URL": platform.api_url, "AF_API_KEY": platform.api_key}
    upkeep(home, "snapshot", "export", snapshot, "--to", str(folder), **there)
    assert upkeep(home, "snapshot", "verify", str(folder)).startswith("whole: ")
    value = next(folder.glob("value-*.json"))
    value.write_bytes(value.read_bytes().replace(CANARY.encode(), b"canard-7f3a", 1))
    _, problems = checked(folder)
    assert [(problem.path, problem.message) for problem in problems] == [(value.name, "It was changed.")]
    made_anew(folder)
    _, problems = checked(folder)
    assert [problem.path for problem in problems] == [value.name]


async def test_bytes_that_were_changed_are_never_given_out_as_the_record(tmp_path, agents_file):
    home = tmp_path / "home"
    async with (
        embedded_platform(home, agents_file=agents_file) as platform,
        Client(platform.api_url, api_key=platform.api_key) as api,
    ):
        execution = await made(api)
        taken = await api.snapshots.take(execution)
        other = await api.snapshots.take(await made(api, "efgh"))
        shelf = home / "artifacts" / "default"
        (path,) = (shelf / taken.id).glob("*.zst")
        (another,) = (shelf / other.id).glob("*.zst")

        path.write_bytes(another.read_bytes())  # another record, whole, in the place of this one

        with pytest.raises(AgentFlowError) as told:
            await read(api.snapshots.content(taken))
        assert told.value.code == "AF1602"
        with pytest.raises(AgentFlowError):
            await api.records.replay(taken.id)
        with pytest.raises(SnapshotAltered):  # and whoever believes no control plane sees it by the digest
            await read(api.snapshots.content(msgspec.structs.replace(other, digest=taken.digest)))


async def test_what_turns_out_to_be_damaged_on_the_way_breaks_off_and_never_looks_complete(tmp_path, agents_file):
    home = tmp_path / "home"
    async with (
        embedded_platform(home, agents_file=agents_file) as platform,
        Client(platform.api_url, api_key=platform.api_key) as api,
    ):
        taken = await api.snapshots.take(await made(api, "abcdefgh" * 30_000))
        assert taken.bytes > 1024 * 1024, "more than is looked at before the answer begins"
        (path,) = (home / "artifacts" / "default" / taken.id).glob("*.zst")
        path.write_bytes(path.read_bytes()[:-1])

        headers = {"Authorization": f"Bearer {platform.api_key}"}
        async with httpx.AsyncClient(base_url=platform.api_url, trust_env=False, headers=headers) as plain:
            with pytest.raises(httpx.RemoteProtocolError):
                await plain.get(f"/api/v1/snapshots/{taken.id}/content")
        with pytest.raises(AgentFlowError):
            await read(api.snapshots.content(taken))


async def test_where_it_is_wanted_everything_that_ends_gets_one_also_after_a_kill(tmp_path, agents_file):
    home = tmp_path / "home"
    wanted = {"AF_SNAPSHOT_ENDED": "default"}
    async with (
        embedded_platform(home, agents_file=agents_file, extra_env=wanted) as platform,
        Client(platform.api_url, api_key=platform.api_key) as api,
    ):
        done = {await made(api) for _ in range(3)}
        platform.control_plane.process.kill()

        async def all_taken() -> bool:
            listed = await api.snapshots.list(workflow="kept", limit=200)
            return {one.execution_id for one in listed.items} == done

        async def back() -> bool:
            return await api.ready()

        await eventually(back, within_s=30)
        done |= {await made(api) for _ in range(3)}
        await eventually(all_taken, within_s=30)
        for one in (await api.snapshots.list(workflow="kept", limit=200)).items:
            assert (one.version, one.status) == ((await api.execution(one.execution_id)).version, "completed")


async def test_where_it_is_wanted_no_history_goes_before_its_snapshot_was_taken(tmp_path, agents_file):
    home = tmp_path / "home"
    async with (
        embedded_platform(home, agents_file=agents_file) as platform,
        Client(platform.api_url, api_key=platform.api_key) as api,
    ):
        execution = await made(api, CANARY, 40_000)
        version = (await api.execution(execution)).version

        upkeep(home, "retention", "run", AF_RETENTION="history=0d", AF_SNAPSHOT_ENDED="*")

        (taken,) = (await api.snapshots.list(execution=execution)).items
        assert (taken.version, taken.status) == (version, "completed")
        assert (await api.records.replay(taken.id)).identical


async def test_a_full_quota_and_a_retention_without_end_are_respected(tmp_path, agents_file):
    home = tmp_path / "home"
    rules = {"AF_RETENTION": "snapshot=never"}
    async with (
        embedded_platform(home, agents_file=agents_file, extra_env=rules) as platform,
        Client(platform.api_url, api_key=platform.api_key) as api,
    ):
        execution = await made(api)
        taken = await api.snapshots.take(execution, version=1)

        with pytest.raises(Conflict) as kept:
            await api.snapshots.delete(taken.id)
        assert (kept.value.code, await api.snapshots.show(taken.id)) == ("AF2322", taken)

        await api.identity.change_tenant("default", quotas={"storage_bytes": 1})

        async def refused() -> bool:
            try:
                await api.snapshots.take(execution)
            except AgentFlowError as error:
                return error.code == "AF1724"
            return False

        await eventually(refused, within_s=15)
