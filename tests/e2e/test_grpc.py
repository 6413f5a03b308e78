"""The gRPC way in: the same operations, the same rules, errors as statuses with our code beside them."""

import json
import re
import time

import grpc
import pytest
from google.protobuf import json_format, struct_pb2
from google.rpc import error_details_pb2, status_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from agentflow.v1 import agentflow_pb2 as pb
from agentflow.v1 import agentflow_pb2_grpc as pb_grpc


def presenting(bearer):
    """Interceptors that send a credential with every call, of whatever kind."""
    metadata = grpc.aio.Metadata(("authorization", f"Bearer {bearer}"))

    async def present(_self, continuation, details, request):
        return await continuation(details._replace(metadata=metadata), request)

    kinds = ("UnaryUnary", "UnaryStream", "StreamStream")
    names = ("unary_unary", "unary_stream", "stream_stream")
    return [
        type(kind, (getattr(grpc.aio, f"{kind}ClientInterceptor"),), {f"intercept_{name}": present})()
        for kind, name in zip(kinds, names, strict=True)
    ]


def channel_target(platform):
    return next(
        json.loads(line)["grpc"]
        for line in platform.control_plane.log.read_text().splitlines()
        if re.search('"event": *"control_plane.ready"', line)
    )


@pytest.fixture
async def channel(platform):
    sending = presenting(platform.api_key)
    async with grpc.aio.insecure_channel(channel_target(platform), interceptors=sending) as channel:
        yield channel


def value(data):
    return json_format.ParseDict(data, struct_pb2.Value())


async def test_a_workflow_is_registered_executed_and_read_back(channel, support):
    workflows, executions = pb_grpc.WorkflowServiceStub(channel), pb_grpc.ExecutionServiceStub(channel)

    registered = await workflows.Register(pb.RegisterRequest(definition=support))
    assert registered.workflow.name == "support"

    ticket = {"ticket": "I forgot my password and the reset link has expired.", "customer": "Mara"}
    executed = await workflows.Execute(pb.ExecuteRequest(workflow="support", input=value(ticket), wait_seconds=20))
    assert executed.execution.status == "completed"
    assert json_format.MessageToDict(executed.execution.output)["status"] == "answered"

    read = await executions.Get(pb.GetRequest(id=executed.execution.id))
    assert read.execution == executed.execution


HOLDS = """
apiVersion: agentflow/v1
kind: Workflow
metadata: {name: rpc-holds, version: 1.0.0, tags: [rpc]}
spec:
  planner: fsm
  fsm:
    initial_state: hold
    final_states: [hold]
    states:
      hold: {wait: {signal: go}, timeout: 1h}
"""


@pytest.fixture
async def workflows(channel):
    stub = pb_grpc.WorkflowServiceStub(channel)
    await stub.Register(pb.RegisterRequest(definition=HOLDS))
    return stub


@pytest.fixture
def executions(channel):
    return pb_grpc.ExecutionServiceStub(channel)


async def test_a_workflow_is_found_and_listed(workflows):
    found = await workflows.Get(pb.WorkflowServiceGetRequest(reference="rpc-holds"))
    listed = await workflows.List(pb.WorkflowServiceListRequest(tag="rpc", page_size=1))

    assert (found.workflow.version, found.source) == ("1.0.0", HOLDS)
    assert (list(listed.workflows), listed.total_size, listed.next_page_token) == ([found.workflow], 1, "")


async def test_an_execution_is_started_once_for_its_key_and_streams_its_events_to_the_end(workflows, executions):
    request = pb.ExecuteStreamRequest(workflow="rpc-holds", input=value({"n": 1}), idempotency_key="stream-1")
    messages = aiter(workflows.ExecuteStream(request))
    execution = (await anext(messages)).execution.id
    again = await workflows.Execute(
        pb.ExecuteRequest(workflow="rpc-holds", input=value({"n": 1}), idempotency_key="stream-1")
    )
    assert again.execution.id == execution

    paused = await executions.Pause(pb.PauseRequest(execution=execution, reason="lunch"))
    assert paused.execution.status == "paused"
    assert (await executions.Resume(pb.ResumeRequest(execution=execution))).execution.status == "running"
    await workflows.Signal(pb.SignalRequest(execution=execution, name="go", payload=value({"by": "test"})))
    events = [message.event async for message in messages]

    ended = (await executions.Get(pb.GetRequest(id=execution))).execution
    assert ended.status == "completed"
    assert [event.version for event in events] == list(range(1, ended.version + 1))
    assert (events[0].type, events[-1].type) == ("execution.started.v1", "execution.completed.v1")
    assert json_format.MessageToDict(events[0].data)["input"] == {"n": 1}


async def test_executions_are_watched_and_listed_page_by_page(workflows, executions):
    started = [(await workflows.Execute(pb.ExecuteRequest(workflow="rpc-holds"))).execution.id for _ in range(3)]
    cancelled = await workflows.Cancel(pb.CancelRequest(execution=started[0], reason="enough"))
    assert cancelled.execution.status == "cancelled"

    watching = executions.Watch(pb.WatchRequest(execution=started[0], after=0))
    seen = []
    async for message in watching:
        if message.HasField("event"):
            assert message.event.execution_id == started[0]
            seen.append(message.event.version)
            if len(seen) == cancelled.execution.version:
                break
    watching.cancel()
    assert seen == list(range(1, cancelled.execution.version + 1))

    token, listed = "", []
    while True:
        page = await executions.List(
            pb.ExecutionServiceListRequest(workflow="rpc-holds", statuses=["running"], page_size=1, page_token=token)
        )
        listed += [item.id for item in page.executions]
        token = page.next_page_token
        if not token:
            break
    assert set(started[1:]) <= set(listed)
    assert started[0] not in listed


async def test_tools_and_agents_are_looked_at_and_a_tool_is_tried_out(channel):
    tools, agents = pb_grpc.ToolServiceStub(channel), pb_grpc.AgentServiceStub(channel)
    listed = await tools.List(pb.ToolServiceListRequest(page_size=2))
    rest = await tools.List(pb.ToolServiceListRequest(page_size=200, page_token=listed.next_page_token))
    names = [tool.name for tool in (*listed.tools, *rest.tools)]
    assert len(names) == listed.total_size
    assert (await tools.Get(pb.ToolServiceGetRequest(reference="json.transform"))).tool.builtin

    tested = await tools.Test(
        pb.TestRequest(reference="json.transform", input=value({"data": {"a": 1}, "path": "$.a"}))
    )
    assert tested.worker
    assert "classifier" in [agent.name for agent in (await agents.List(pb.AgentServiceListRequest())).agents]
    assert (await agents.Get(pb.AgentServiceGetRequest(name="classifier"))).instances[0].worker


async def test_a_call_never_waits_beyond_its_deadline(workflows):
    waiting = workflows.Execute(pb.ExecuteRequest(workflow="rpc-holds", wait_seconds=60), timeout=5)

    assert (await waiting).execution.status == "running"


async def test_a_watch_ends_with_its_deadline(executions):
    watching = executions.Watch(pb.WatchRequest(), timeout=0.5)
    began = time.monotonic()
    with pytest.raises(grpc.aio.AioRpcError) as over:
        async for _ in watching:
            pass

    assert over.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert time.monotonic() - began < 5


async def test_health_is_told_and_the_services_describe_themselves(channel):
    health = health_pb2_grpc.HealthStub(channel)
    for service in ("", "agentflow.v1.WorkflowService"):
        answer = await health.Check(health_pb2.HealthCheckRequest(service=service))
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
    with pytest.raises(grpc.aio.AioRpcError) as unknown:
        await health.Check(health_pb2.HealthCheckRequest(service="nope"))
    assert unknown.value.code() is grpc.StatusCode.NOT_FOUND

    reflected = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(
        iter([reflection_pb2.ServerReflectionRequest(list_services="")])
    )
    services = {service.name for service in (await reflected.read()).list_services_response.service}
    assert {f"agentflow.v1.{noun}Service" for noun in ("Workflow", "Execution", "Tool", "Agent")} <= services


@pytest.mark.parametrize(
    ("call", "status", "code"),
    [
        (lambda stub: stub.Execute(pb.ExecuteRequest(workflow="nope")), grpc.StatusCode.NOT_FOUND, "AF1211"),
        (lambda stub: stub.Register(pb.RegisterRequest(definition="a: [")), grpc.StatusCode.INVALID_ARGUMENT, "AF1101"),
    ],
)
async def test_errors_are_statuses_with_our_code_and_a_hint(channel, call, status, code):
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await call(pb_grpc.WorkflowServiceStub(channel))

    assert failed.value.code() is status
    assert dict(failed.value.trailing_metadata())["af-code"] == code
    assert "try:" in failed.value.details()


async def test_an_error_is_a_status_with_the_details_that_every_client_knows(channel):
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await pb_grpc.WorkflowServiceStub(channel).Register(pb.RegisterRequest(definition=HOLDS.replace("fsm", "fsn")))

    status = status_pb2.Status.FromString(dict(failed.value.trailing_metadata())["grpc-status-details-bin"])
    assert status.code == failed.value.code().value[0]
    info, wrong = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
    assert status.details[0].Unpack(info)
    assert (info.reason, info.domain) == ("AF1101", "agentflow")
    assert info.metadata["hint"]
    assert status.details[1].Unpack(wrong)
    assert "fsm" in wrong.field_violations[0].description


async def test_a_refused_caller_is_told_why_with_the_same_details(platform):
    method = "/agentflow.v1.AgentService/List"
    async with grpc.aio.insecure_channel(channel_target(platform)) as stranger:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stranger.unary_unary(method)(b"")

    status = status_pb2.Status.FromString(dict(refused.value.trailing_metadata())["grpc-status-details-bin"])
    info = error_details_pb2.ErrorInfo()
    assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
    assert status.details[0].Unpack(info)
    assert (status.code, info.reason) == (grpc.StatusCode.UNAUTHENTICATED.value[0], "AF1703")


async def test_a_role_for_some_tools_and_workflows_reaches_no_others(platform, api, workflows):
    await api.identity.add_role(
        "rpc-some", ["workflows.execute", "tools.test"], allowed_tools=["kb.*"], workflows=["support"]
    )
    account = await api.identity.add_service_account("rpc-some", roles=["rpc-some"])
    key = await api.identity.add_api_key("rpc-some", user=account.id)
    async with grpc.aio.insecure_channel(channel_target(platform), interceptors=presenting(key.key)) as limited:
        stub, tools = pb_grpc.WorkflowServiceStub(limited), pb_grpc.ToolServiceStub(limited)
        for attempt in (
            stub.Execute(pb.ExecuteRequest(workflow="rpc-holds")),
            aiter(stub.ExecuteStream(pb.ExecuteStreamRequest(workflow="rpc-holds"))).__anext__(),
            tools.Test(pb.TestRequest(reference="json.transform")),
        ):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await attempt
            assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
            assert dict(refused.value.trailing_metadata())["af-code"] in ("AF1706", "AF1707")
