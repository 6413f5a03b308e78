"""Every error we have is a gRPC status with details, and means the same there as over REST."""

import importlib
import pkgutil
from http import HTTPStatus

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2

import agentflow
import control_plane
from agentflow.errors import AgentFlowError, Bug, Invalid, Limited, Problem, Unavailable
from agentflow.process_exit import ExecutionDidNotComplete
from control_plane.api.errors import STATUS_OF_FAMILY as HTTP_OF_FAMILY
from control_plane.rpc.errors import STATUS_OF_FAMILY, metadata_of, status_of

# What REST and gRPC call the same thing (google.rpc.Code names the HTTP statuses).
SAME = {
    HTTPStatus.NOT_FOUND: grpc.StatusCode.NOT_FOUND,
    HTTPStatus.CONFLICT: grpc.StatusCode.ALREADY_EXISTS,
    HTTPStatus.UNPROCESSABLE_ENTITY: grpc.StatusCode.INVALID_ARGUMENT,
    HTTPStatus.UNAUTHORIZED: grpc.StatusCode.UNAUTHENTICATED,
    HTTPStatus.FORBIDDEN: grpc.StatusCode.PERMISSION_DENIED,
    HTTPStatus.PAYMENT_REQUIRED: grpc.StatusCode.RESOURCE_EXHAUSTED,
    HTTPStatus.TOO_MANY_REQUESTS: grpc.StatusCode.RESOURCE_EXHAUSTED,
    HTTPStatus.BAD_REQUEST: grpc.StatusCode.FAILED_PRECONDITION,
    HTTPStatus.SERVICE_UNAVAILABLE: grpc.StatusCode.UNAVAILABLE,
    HTTPStatus.INTERNAL_SERVER_ERROR: grpc.StatusCode.INTERNAL,
}


def every_kind_of_error() -> list[type[AgentFlowError]]:
    """Of all modules that the control plane has, without what only `af` says when it ends."""
    for package in (agentflow, control_plane):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith("__main__") and ".migrations" not in module.name:
                importlib.import_module(module.name)
    found, rest = [], [AgentFlowError]
    while rest:
        rest += (children := rest.pop().__subclasses__())
        found += children
    return [
        kind
        for kind in dict.fromkeys(found)
        if kind.__module__.startswith(("agentflow.", "control_plane.")) and kind is not ExecutionDidNotComplete
    ]


def test_every_error_has_a_status_and_only_our_own_faults_are_internal():
    kinds = every_kind_of_error()

    assert len(kinds) > 100
    for kind in kinds:
        status = next(status for family, status in STATUS_OF_FAMILY if issubclass(kind, family))
        assert (status is grpc.StatusCode.INTERNAL) == issubclass(kind, Bug), kind


def test_a_family_means_the_same_over_both_ways_in():
    assert [(family, SAME[status]) for family, status in HTTP_OF_FAMILY] == list(STATUS_OF_FAMILY)


def told(error):
    """The google.rpc.Status that goes with an error, and its details by kind."""
    metadata = dict(metadata_of(error))
    status = status_pb2.Status.FromString(metadata["grpc-status-details-bin"])
    kinds = (error_details_pb2.ErrorInfo, error_details_pb2.BadRequest, error_details_pb2.RetryInfo)
    details = {}
    for packed in status.details:
        made = next(kind() for kind in kinds if packed.Is(kind.DESCRIPTOR))
        packed.Unpack(made)
        details[type(made).__name__] = made
    return metadata, status, details


@pytest.mark.parametrize("family", [family for family, _ in STATUS_OF_FAMILY], ids=lambda family: family.__name__)
def test_every_family_comes_with_its_code_its_hint_and_the_same_number(family):
    error = family("This went wrong.", hint="Do that.")
    metadata, status, details = told(error)

    assert metadata["af-code"] == details["ErrorInfo"].reason == error.code
    assert (status.code, status.message) == (status_of(error).value[0], "This went wrong.")
    assert details["ErrorInfo"].domain == "agentflow"
    assert details["ErrorInfo"].metadata["hint"] == "Do that."
    assert ("RetryInfo" in details) == error.retryable


def test_who_may_come_back_is_told_when():
    _, _, limited = told(Limited("Too often.", hint="Wait.", retry_after_s=2.5))
    _, _, away = told(Unavailable("Away.", hint="Wait."))

    assert limited["RetryInfo"].retry_delay.ToMilliseconds() == 2_500
    assert away["RetryInfo"].retry_delay.ToMilliseconds() == 1_000


def test_every_fault_of_an_input_comes_with_its_place():
    problems = [Problem("It is no number.", path="input.a"), Problem("It is missing.", path="input.b")]
    _, _, details = told(Invalid("Wrong.", hint="Correct it.", problems=problems))

    assert [fault.field for fault in details["BadRequest"].field_violations] == ["input.a", "input.b"]
