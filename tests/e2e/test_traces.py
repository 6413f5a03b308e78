"""Where the time of an execution went: spans made from its events and from what workers recorded of tools."""

import pytest

from agentflow.errors import NotFound
from agentflow.sdk.blocking import BlockingClient
from agentflow.testing import eventually

PARENT = """\
apiVersion: agentflow/v1
kind: Workflow
metadata: {name: traced-parent, version: 1.0.0}
spec:
  planner: fsm
  fsm:
    initial_state: sub
    final_states: [sub]
    states:
      sub:
        subworkflow: {name: support}
        input: {customer: Mara, ticket: "I forgot my password and the reset link in the email has expired."}
        timeout: 1m
"""


async def test_a_trace_has_the_execution_its_child_their_steps_attempts_and_tool_calls(api, support, platform, af):
    await api.push_workflow(support)
    await api.push_workflow(PARENT)
    started = await api.execute("traced-parent", {}, wait=True, wait_s=30)

    async def has_a_call() -> bool:  # a worker tells of its calls beside the result
        return any(span.kind == "tool_call" for span in (await api.records.trace(started.trace_id)).items)

    await eventually(has_a_call, within_s=15)
    found = await api.records.trace(started.trace_id)

    by_id = {span.span_id: span for span in found.items}
    assert len(by_id) == len(found.items), "ids are unique"
    root, inner = (span for span in found.items if span.kind == "execution")
    assert (root.execution_id, root.parent_span_id, root.status) == (started.execution_id, None, "ok")
    child = by_id[inner.parent_span_id or ""]
    assert (child.kind, child.execution_id, child.attributes["execution_id"]) == (
        "child",
        root.execution_id,
        inner.execution_id,
    )
    call = next(span for span in found.items if span.kind == "tool_call")
    attempt = by_id[call.parent_span_id or ""]
    step = by_id[attempt.parent_span_id or ""]
    assert (call.name, attempt.kind, step.kind, step.name) == ("kb.search", "attempt", "step", "knowledge_search")
    assert by_id[step.parent_span_id or ""] == inner
    assert all(span.ended_at is not None and span.duration_ms is not None for span in found.items)
    assert (await api.records.trace(started.trace_id)).items == found.items, "the same whenever it is looked at"
    with BlockingClient(platform.api_url, api_key=platform.api_key) as client:
        assert client.trace(started.trace_id) == found
    said = af("executions", "trace", started.execution_id).stdout
    assert "✓ execution traced-parent@1.0.0" in said
    assert "          ✓ tool_call kb.search" in said


async def test_a_trace_that_nobody_began_is_not_there(api):
    for trace in ("0" * 32, "nonsense", "f" * 32, "019" + "0" * 29):
        with pytest.raises(NotFound):
            await api.records.trace(trace)
