"""What holds for every route: lists that can be paged and filtered, ETags, versions, request ids, compression."""

import asyncio
import gzip

import httpx
import pytest

WORKFLOW = """
apiVersion: agentflow/v1
kind: Workflow
metadata: {{name: {name}, version: {version}, tags: [{tag}]}}
spec:
  planner: fsm
  fsm:
    initial_state: hold
    final_states: [hold]
    states:
      hold: {{wait: {{signal: go}}, timeout: 1h}}
"""


@pytest.fixture
async def http(platform):
    async with httpx.AsyncClient(
        base_url=f"{platform.api_url}/api/v1",
        trust_env=False,
        timeout=30,
        headers={"Authorization": f"Bearer {platform.api_key}"},
    ) as client:
        yield client


async def push(http, name, version="1.0.0", tag="none", **headers):
    text = WORKFLOW.format(name=name, version=version, tag=tag)
    return await http.post("/workflows", content=text, headers={"Content-Type": "application/yaml", **headers})


async def start(http, workflow, **input):
    answer = await http.post(f"/workflows/{workflow}/execute", json={"input": input})
    assert answer.status_code == 202, answer.text
    return answer.json()["execution_id"]


async def pages(http, path, **parameters):
    """Every page of a list, as a caller turns them."""
    cursor = {}
    while True:
        page = (await http.get(path, params={**parameters, **cursor})).raise_for_status().json()
        yield page
        if page["next_cursor"] is None:
            return
        cursor = {"cursor": page["next_cursor"]}


async def ids(http, path, **parameters):
    return [item["id"] async for page in pages(http, path, **parameters) for item in page["items"]]


async def test_pages_stay_whole_while_executions_start_between_them(http):
    await push(http, "paged")
    before = [await start(http, "paged") for _ in range(7)]

    seen = []
    async for page in pages(http, "/executions", **{"filter[workflow]": "paged", "limit": 2}):
        seen += [item["id"] for item in page["items"]]
        await start(http, "paged")

    assert seen == before[::-1]
    upward = await ids(http, "/executions", **{"filter[workflow]": "paged", "limit": 3, "sort": "started_at"})
    assert upward[:7] == before
    assert len(upward) == len(set(upward)) == 11


async def test_executions_are_filtered_by_workflow_version_status_tag_time_and_input(http):
    await push(http, "filtered", "1.0.0", tag="blue")
    await push(http, "filtered", "1.1.0", tag="green")
    old = await start(http, "filtered@1.0.0", customer={"name": "Mara", "age": 40}, lines=["a", "b"])
    new = await start(http, "filtered", customer={"name": "Jo", "age": 41}, urgent=True)
    cancelled = await start(http, "filtered", customer={"name": "Mara"})
    await http.post(f"/executions/{cancelled}/cancel")
    began = (await http.get(f"/executions/{new}")).json()["started_at"]

    async def found(**filters):
        return set(await ids(http, "/executions", **{f"filter[{name}]": value for name, value in filters.items()}))

    assert await found(workflow="filtered") == {old, new, cancelled}
    assert await found(workflow="filtered@1.0.0") == {old} == await found(tag="blue")
    assert await found(tag="green") == {new, cancelled}
    assert await found(workflow="filtered", status="cancelled") == {cancelled}
    assert await found(workflow="filtered", status="cancelled,running") == {old, new, cancelled}
    assert await found(workflow="filtered", started_after=began) == {new, cancelled}
    assert await found(workflow="filtered", started_before=began) == {old}
    assert await found(workflow="filtered", **{"input.customer.name": "Mara"}) == {old, cancelled}
    assert await found(workflow="filtered", **{"input.customer.name": "Mara", "input.lines": "b"}) == {old}
    assert await found(workflow="filtered", **{"input.customer.age": "41"}) == {new}
    assert await found(workflow="filtered", **{"input.urgent": "true"}) == {new}
    assert await found(workflow="filtered", **{"input.customer": "Mara"}) == set()


async def test_list_and_detail_agree_whatever_has_just_happened_to_an_execution(http):
    await push(http, "agreeing")
    execution = await start(http, "agreeing")

    for order in (None, "pause", "resume", "cancel"):
        if order is not None:
            (await http.post(f"/executions/{execution}/{order}")).raise_for_status()
        shown = (await http.get(f"/executions/{execution}")).json()
        (listed,) = (await http.get("/executions", params={"filter[workflow]": "agreeing"})).json()["items"]

        assert {key: listed[key] for key in listed if key != "workflow"} == {
            key: shown[key] for key in listed if key != "workflow"
        }
        assert listed["workflow"].items() <= shown["workflow"].items()


async def test_workflows_and_tools_are_paged_filtered_and_sorted(http):
    for name, tag in (("listed-c", "x1"), ("listed-a", "x1"), ("listed-b", "x2")):
        await push(http, name, tag=tag)

    pushed = [
        item async for page in pages(http, "/workflows", limit=1, **{"filter[tag]": "x1"}) for item in page["items"]
    ]
    assert [item["name"] for item in pushed] == ["listed-a", "listed-c"]
    by_name = [item async for page in pages(http, "/workflows", limit=2, sort="name") for item in page["items"]]
    assert [item["name"] for item in by_name] == sorted(item["name"] for item in by_name)
    assert {"listed-a", "listed-b", "listed-c"} <= {item["name"] for item in by_name}
    whole = (await http.get("/tools", params={"limit": 200})).json()
    assert await ids(http, "/tools", limit=2) == [tool["id"] for tool in whole["items"]]
    assert whole["total_count"] == len(whole["items"])
    only = await ids(http, "/tools", **{"filter[name]": "http.request", "filter[builtin]": "true"})
    assert len(only) == 1
    await push(http, "listed-a", "1.10.0")
    await push(http, "listed-a", "1.9.0")
    versions = (await http.get("/workflows/listed-a/versions")).json()
    assert [item["version"] for item in versions["items"]] == ["1.10.0", "1.9.0", "1.0.0"]
    assert (await http.get("/workflows/nowhere/versions")).status_code == 404


@pytest.mark.parametrize(
    ("parameters", "named"),
    [
        ({"status": "failed"}, "filter[status]"),
        ({"filter[statsu]": "failed"}, "status"),
        ({"filter[status]": "done"}, "completed"),
        ({"filter[started_after]": "yesterday"}, "2026-11-18"),
        ({"sort": "name"}, "-started_at"),
        ({"limit": "0"}, "200"),
        ({"limit": "many"}, "200"),
    ],
)
async def test_a_list_that_cannot_be_asked_for_says_what_can_be(http, parameters, named):
    answer = await http.get("/executions", params=parameters)

    assert answer.status_code == 422
    assert named in str(answer.json()["problems"])


async def test_a_cursor_is_only_good_for_the_question_it_was_given_for(http):
    await push(http, "cursored")
    for _ in range(2):
        await start(http, "cursored")
    asked = {"filter[workflow]": "cursored", "limit": 1}
    cursor = (await http.get("/executions", params=asked)).json()["next_cursor"]

    assert (await http.get("/executions", params={**asked, "cursor": cursor})).status_code == 200
    bad = [
        {"limit": 1, "cursor": cursor},
        {**asked, "sort": "started_at", "cursor": cursor},
        {**asked, "cursor": cursor[:-2]},
        {**asked, "cursor": "!" + cursor},
        {**asked, "cursor": ""},
    ]
    for parameters in bad:
        answer = await http.get("/executions", params=parameters)
        assert (answer.status_code, answer.json()["code"]) == (400, "AF1012")


async def test_what_has_not_changed_is_not_sent_again(http):
    await push(http, "tagged")
    execution = await start(http, "tagged")
    for path in (f"/executions/{execution}", "/workflows/tagged", "/workflows?filter[name]=tagged", "/tools"):
        first = await http.get(path)
        assert first.headers["etag"].startswith('"')
        again = await http.get(path, headers={"If-None-Match": f'"other", {first.headers["etag"]}'})
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["etag"] == first.headers["etag"]

    before = (await http.get(f"/executions/{execution}")).headers["etag"]
    await http.post(f"/executions/{execution}/pause")
    changed = await http.get(f"/executions/{execution}", headers={"If-None-Match": before})
    assert changed.status_code == 200
    assert changed.headers["etag"] != before


async def test_an_order_for_an_execution_as_it_was_is_refused_once_it_has_changed(http):
    await push(http, "guarded")
    execution = await start(http, "guarded")
    seen = (await http.get(f"/executions/{execution}")).headers["etag"]

    paused = await http.post(f"/executions/{execution}/pause", headers={"If-Match": seen, "Idempotency-Key": "p"})
    late = await http.post(f"/executions/{execution}/cancel", headers={"If-Match": seen})

    assert paused.status_code == 200
    assert (late.status_code, late.json()["code"]) == (412, "AF1013")
    assert (await http.get(f"/executions/{execution}")).json()["status"] == "paused"
    repeated = await http.post(f"/executions/{execution}/pause", headers={"If-Match": seen, "Idempotency-Key": "p"})
    assert repeated.status_code == 200, "the same request again, after it was done"
    strange = await http.post(f"/executions/{execution}/cancel", headers={"If-Match": '"strange"'})
    assert strange.status_code == 412
    current = await http.post(f"/executions/{execution}/cancel", headers={"If-Match": paused.headers["etag"]})
    assert current.json()["status"] == "cancelled"


async def test_of_many_who_order_on_the_same_sight_exactly_one_is_heard(http):
    await push(http, "raced")
    execution = await start(http, "raced")
    seen = (await http.get(f"/executions/{execution}")).headers["etag"]

    answers = await asyncio.gather(
        *(
            http.post(f"/executions/{execution}/signal", json={"name": f"n{number}"}, headers={"If-Match": seen})
            for number in range(10)
        )
    )

    assert sorted(answer.status_code for answer in answers) == [200] + [412] * 9


async def test_a_version_made_from_an_older_one_than_the_newest_is_refused(http):
    first = await push(http, "authored", "1.0.0")
    second = await push(http, "authored", "1.1.0", **{"If-Match": first.headers["etag"]})
    late = await push(http, "authored", "1.2.0", **{"If-Match": first.headers["etag"]})

    assert second.status_code == 201
    assert (late.status_code, late.json()["code"]) == (412, "AF1224")
    assert "1.1.0" in late.json()["detail"]
    assert (await push(http, "authored", "1.1.0", **{"If-Match": first.headers["etag"]})).status_code == 200
    racing = await asyncio.gather(
        *(push(http, "authored", f"1.{n}.0", **{"If-Match": second.headers["etag"]}) for n in range(2, 8))
    )
    assert sorted(answer.status_code for answer in racing) == [201] + [412] * 5


@pytest.mark.parametrize(
    ("accept", "status", "kind"),
    [
        ("application/vnd.agentflow.v1+json", 200, "application/vnd.agentflow.v1+json"),
        ("application/vnd.agentflow.v9+json, application/json;q=0.5", 200, "application/json"),
        ("text/html, */*;q=0.1", 200, "application/json"),
        ("application/vnd.agentflow.v9+json", 406, "application/problem+json"),
        ("application/vnd.agentflow.v1x+json", 406, "application/problem+json"),
    ],
)
async def test_a_caller_names_the_version_it_speaks(http, accept, status, kind):
    answer = await http.get("/tools", headers={"Accept": accept})

    assert answer.status_code == status
    assert answer.headers["content-type"] == kind


async def test_every_answer_has_a_request_id_and_a_given_one_comes_back(http):
    ours = [(await http.get(path)).headers["x-request-id"] for path in ("/tools", "/nothing", "/executions/exec_x")]
    assert len(set(ours)) == 3

    given = await http.get("/tools", headers={"X-Request-Id": "checkout-42"})
    assert given.headers["x-request-id"] == "checkout-42"
    strange = await http.get("/tools", headers={"X-Request-Id": 'a"b\tc'})
    assert strange.headers["x-request-id"] not in ('a"b\tc', "")


async def test_a_large_answer_is_compressed_for_who_can_read_it_and_has_a_tag_of_its_own(http):
    plain = await http.get("/tools?limit=200", headers={"Accept-Encoding": "identity"})
    async with http.stream("GET", "/tools?limit=200", headers={"Accept-Encoding": "gzip"}) as answer:
        raw = b"".join([part async for part in answer.aiter_raw()])

    assert "content-encoding" not in plain.headers
    assert answer.headers["content-encoding"] == "gzip"
    assert gzip.decompress(raw) == plain.content
    assert len(raw) < len(plain.content) / 2
    assert answer.headers["etag"] != plain.headers["etag"]
    for known in (answer.headers["etag"], plain.headers["etag"]):
        assert (await http.get("/tools?limit=200", headers={"If-None-Match": known})).status_code == 304
    assert "Accept-Encoding" in answer.headers["vary"]
