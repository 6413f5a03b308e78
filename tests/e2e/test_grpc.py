"""The gRPC way in: the same operations, the same rules, errors as statuses with our code beside them."""

import json
import re

import grpc
import pytest
from google.protobuf import json_format, struct_pb2

from agentflow.v1 import agentflow_pb2 as pb
from agentflow.v1 import agentflow_pb2_grpc as pb_grpc


class Presenting(grpc.aio.UnaryUnaryClientInterceptor):
    """Sends a credential with every call."""

    def __init__(self, bearer):
        self._metadata = (("authorization", f"Bearer {bearer}"),)

    async def intercept_unary_unary(self, continuation, client_call_details, request):
        details = client_call_details._replace(metadata=grpc.aio.Metadata(*self._metadata))
        return await continuation(details, request)


@pytest.fixture
async def channel(platform):
    ready = next(
        json.loads(line)
        for line in platform.control_plane.log.read_text().splitlines()
        if re.search('"event": *"control_plane.ready"', line)
    )
    async with grpc.aio.insecure_channel(ready["grpc"], interceptors=[Presenting(platform.api_key)]) as channel:
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
