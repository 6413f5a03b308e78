"""What an agent sees and answers when values travel beside the message."""

import time

import msgspec
import pytest

from agentflow.artifacts.claim_check import ClaimCheck
from agentflow.artifacts.folder import Folder
from agentflow.artifacts.store import KeptArtifacts
from agentflow.contracts.claims import Claim, parted
from agentflow.contracts.step import StepRequest
from agentflow.ports import Shelf
from worker.large_values import LargeValues
from worker.outcome import StepFailed

SHELF = Shelf("acme", "exec_1")
BIG = {"text": "x" * 400_000}


@pytest.fixture
def claims(tmp_path) -> ClaimCheck:
    return ClaimCheck(KeptArtifacts(Folder(tmp_path / "artifacts")))


@pytest.fixture
def carried(asked):
    """A request and its message, for input that holds claims."""

    def make(given):
        plain, found = parted(given)
        message = asked(input=plain, claims=tuple(found))
        message = msgspec.structs.replace(message, metadata={**message.metadata, "tenant_id": "acme"})
        return message.read(StepRequest), message

    return make


async def test_an_agent_sees_the_whole_input(claims, carried):
    request, message = carried({"data": await claims.checked(SHELF, BIG), "n": 1})

    whole = await LargeValues(claims).whole(request, message)

    assert (whole.input, whole.claims) == ({"data": BIG, "n": 1}, ())


async def test_a_large_output_is_kept_and_a_small_one_travels(claims, carried):
    request, message = carried({})
    values = LargeValues(claims)

    kept = await values.claimed(request, message, BIG)

    assert isinstance(kept, Claim)
    assert await claims.value(SHELF, kept) == BIG
    assert await values.claimed(request, message, {"small": 1}) == {"small": 1}


async def test_an_output_beyond_what_may_be_kept_fails_its_step_with_its_size_and_at_once(claims, carried, monkeypatch):
    monkeypatch.setattr("agentflow.limits.VALUE_BYTES_MAX", 300_000)
    began_s = time.perf_counter()

    with pytest.raises(StepFailed) as failed:
        await LargeValues(claims).claimed(*carried({}), BIG)

    assert time.perf_counter() - began_s < 1
    assert (failed.value.fault.code, failed.value.fault.retryable) == ("output_too_large", False)
    assert "400011 bytes" in failed.value.fault.message


async def test_a_large_output_without_a_canonical_form_is_a_fault(claims, carried):
    with pytest.raises(StepFailed) as failed:
        await LargeValues(claims).claimed(*carried({}), {"text": BIG["text"], "n": 2**60})

    assert failed.value.fault.code == "output_invalid"


async def test_a_value_that_is_lost_fails_the_step_and_says_so(claims, carried):
    claim = await claims.checked(SHELF, BIG)
    await claims._store.drop(SHELF)

    with pytest.raises(StepFailed) as failed:
        await LargeValues(claims).whole(*carried({"data": claim}))

    assert (failed.value.fault.code, failed.value.fault.retryable) == ("artifact_lost", False)


async def test_a_step_cannot_reach_the_values_of_another_tenant(claims, carried):
    claim = await claims.checked(Shelf("other", "exec_1"), BIG)

    with pytest.raises(StepFailed) as failed:
        await LargeValues(claims).whole(*carried({"data": claim}))

    assert failed.value.fault.code == "artifact_lost"
