"""Each invariant, shown on a history that keeps it and on one that breaks it in the one way it is there for."""

from collections.abc import Callable
from functools import reduce
from typing import Any

import msgspec
import psutil
import pytest

from agentflow.contracts.step import StepFault
from agentflow.execution import events as happened
from agentflow.execution.evolve import evolve
from agentflow.execution.state import ExecutionState, Status
from agentflow.ids import AgentName, ExecutionId, StepPath, TenantId, TraceId, WorkerId, WorkflowId
from tests.invariants.history import Asked, Effect, Held, History, Kept, Listed, Recorded, Reign
from tests.invariants.leftovers import Host
from tests.invariants.rules import INVARIANTS, assert_holds, violations

TENANT, ONE, TWO = TenantId("acme"), ExecutionId("exec_1"), ExecutionId("exec_2")
WORKER = WorkerId("wrk_1")
WORKFLOW = happened.WorkflowRef(WorkflowId("wf_1"), "line", "1.0.0", "d")


def started(at_ms: int = 0) -> happened.ExecutionStarted:
    return happened.ExecutionStarted(at_ms, ONE, TENANT, WORKFLOW, {}, TraceId("t"))


def scheduled(path: str, at_ms: int, attempt: int = 1) -> happened.StepScheduled:
    return happened.StepScheduled(at_ms, StepPath(path), path, attempt, AgentName("a"), {}, 1_000)


def succeeded(path: str, at_ms: int, attempt: int = 1) -> happened.StepSucceeded:
    return happened.StepSucceeded(at_ms, StepPath(path), attempt, {"n": 1}, WORKER, at_ms, at_ms)


def failed(path: str, at_ms: int, *, attempt: int = 1, retry_at_ms: int | None = None) -> happened.StepFailed:
    return happened.StepFailed(at_ms, StepPath(path), attempt, StepFault("f", "", True), retry_at_ms, WORKER)


def timed_out(path: str, at_ms: int) -> happened.StepFailed:
    return happened.StepFailed(at_ms, StepPath(path), 1, StepFault("timeout", ""))


STORY: tuple[happened.Event, ...] = (
    started(),
    scheduled("a", 10),
    failed("a", 20, retry_at_ms=50),
    scheduled("a", 50, attempt=2),
    succeeded("a", 60, attempt=2),
    happened.TimerStarted(60, "nap", 160),
    happened.TimerFired(160, "nap"),
    happened.SignalReceived(165, "s1", "go", None),
    scheduled("b", 170),
    succeeded("b", 180),
    happened.ExecutionCompleted(180, {}),
)
CANCELLED: tuple[happened.Event, ...] = (
    started(),
    scheduled("a", 10),
    happened.CancelRequested(20, "c1", ""),
    happened.StepHalted(20, StepPath("a")),
    happened.ExecutionCancelled(20, ""),
)


def history(*events: happened.Event, **changes: Any) -> History:
    """A history of one execution that keeps every invariant, unless its events or a change do not."""
    recorded = [Recorded(at, TENANT, ONE, 3, at, 1, event) for at, event in enumerate(events, 1)]
    made = History(at_ms=1_000, events=tuple(recorded), leases=(Held(3, 2, "srv_1", 5.0),))
    return msgspec.structs.replace(made, **changes)


def effect(path: str, attempt: int, *, key: str = "", at_most_once: bool = False) -> Effect:
    return Effect(ONE, StepPath(path), attempt, key or f"{TENANT}/{ONE}/{path}", at_most_once)


def sent(*steps: tuple[str, int]) -> frozenset[tuple[ExecutionId, StepPath, int]]:
    return frozenset((ONE, StepPath(path), attempt) for path, attempt in steps)


def folded(*events: happened.Event) -> ExecutionState:
    return reduce(evolve, events, ExecutionState())


def changed(position: int, **fields: Any) -> Callable[[History], History]:
    """The history with one of its rows as it should not be."""

    def change(whole: History) -> History:
        rows = list(whole.events)
        rows[position - 1] = msgspec.structs.replace(rows[position - 1], **fields)
        return msgspec.structs.replace(whole, events=tuple(rows))

    return change


def whole() -> History:
    return history(
        *STORY,
        listed=(Listed(ONE, TENANT, Status.COMPLETED, 3, 0, 180),),
        snapshots=(Kept(ONE, 4, folded(*STORY[:4])),),
        asked=(
            Asked("start", "accepted", ONE, key="k1", body={"n": 1}),
            Asked("start", "accepted", ONE, key="k1", body={"n": 1}),
            Asked("start", "refused", key="k1", body={"n": 2}),
            Asked("start", "unknown", key="k2", body={"n": 2}),
            Asked("signal", "accepted", ONE, id="s1"),
            Asked("signal", "accepted", ONE, id="s2", was_over=True),
        ),
        effects=(effect("a", 1), effect("a", 2), effect("b", 1)),
        sent=sent(("a", 1), ("a", 2), ("b", 1)),
        reigns=(Reign(3, 1, 4), Reign(3, 2, len(STORY))),
        healed_at_ms=100,
        ends_within_ms=100,
    )


def test_a_history_without_a_fault_keeps_every_invariant():
    assert_holds(whole())
    assert_holds(history(*CANCELLED, asked=(Asked("cancel", "accepted", ONE, id="c1"),)))
    assert_holds(history(*STORY[:4], at_ms=60, all_end=False))


def also(**changes: Any) -> History:
    return msgspec.structs.replace(whole(), **changes)


def asking(*more: Asked) -> History:
    return also(asked=(*whole().asked, *more))


UNKNOWN = Listed(TWO, TENANT, Status.RUNNING, 3, 0, None)

BROKEN: list[tuple[str, str, History]] = [
    ("I1", "start", also(asked=(Asked("start", "accepted", TWO),))),
    ("I1", "signal s9", also(asked=(Asked("signal", "accepted", ONE, id="s9"),))),
    ("I1", "vars v1", also(asked=(Asked("vars", "accepted", ONE, id="v1"),))),
    ("I1", "answer t1", also(asked=(Asked("answer", "accepted", ONE, id="t1"),))),
    ("I1", "cancel c9", history(*STORY[:4], all_end=False, asked=(Asked("cancel", "accepted", ONE, id="c9"),))),
    ("I2", "waits for nothing", history(*STORY[:5], all_end=False)),
    ("I2", "nobody owns its shard 3", history(*STORY[:4], all_end=False, leases=(Held(3, 1, None, 0.0),))),
    ("I2", "nobody owns its shard 3", history(*STORY[:4], all_end=False, leases=(Held(3, 1, "srv_1", -1.0),))),
    ("I3", "has the versions", changed(3, version=4)(whole())),
    ("I3", "begins with", history(*STORY[1:])),
    ("I3", "started twice", history(*STORY[:2], started(), *STORY[2:])),
    ("I3", "goes on with", history(*STORY, happened.VarsUpdated(200, "v1", {}))),
    ("I4", "while 2 was current", history(*STORY[:4], succeeded("a", 60, attempt=1), all_end=False)),
    ("I4", "while None was current", history(*CANCELLED[:4], succeeded("a", 60), all_end=False)),
    ("I4", "attempt 3 follows attempt 1", history(*STORY[:3], scheduled("a", 50, attempt=3), all_end=False)),
    ("I4", "attempt 1 follows attempt 1", history(*STORY[:3], scheduled("a", 50), all_end=False)),
    ("I4", "scheduled after it has succeeded", history(*STORY[:5], scheduled("a", 70, attempt=3), all_end=False)),
    ("I4", "has 2 outcomes", history(*STORY[:5], succeeded("a", 61, attempt=2), all_end=False)),
    ("I5", "ran and is not recorded", also(effects=(effect("a", 3),))),
    ("I5", "ran under the key", also(effects=(effect("a", 1, key="other"),))),
    ("I5", "ran 3 times in 2 attempts", also(effects=(effect("a", 1), effect("a", 1), effect("a", 2)))),
    ("I5", "once at most", also(effects=(effect("a", 1, at_most_once=True), effect("a", 2, at_most_once=True)))),
    ("I7", "stands for exec_1 and for exec_2", asking(Asked("start", "accepted", TWO, key="k1", body={"n": 1}))),
    ("I7", "two different requests", asking(Asked("start", "accepted", ONE, key="k1", body={"n": 3}))),
    ("I7", "recorded 2 times", history(*STORY[:8], STORY[7], *STORY[8:])),
    ("I8", "does not fold", history(*CANCELLED[:4], succeeded("a", 60), all_end=False)),
    ("I8", "is listed as", also(listed=(Listed(ONE, TENANT, Status.RUNNING, 3, 0, None),))),
    ("I8", "has no events", also(listed=(*whole().listed, UNKNOWN))),
    ("I8", "is not listed", also(listed=(UNKNOWN,))),
    ("I8", "snapshot of version 4", also(snapshots=(Kept(ONE, 4, folded(*STORY[:3])),))),
    ("I8", "remembers version 4", also(remembered=(folded(*STORY[:4]),))),
    ("I13", "fired 10 ms early", history(*STORY[:6], happened.TimerFired(150, "nap"), *STORY[7:])),
    ("I13", "fired and was not set", history(*STORY[:7], happened.TimerFired(160, "nap"), *STORY[7:])),
    ("I13", "tried again 1 ms early", history(*STORY[:3], scheduled("a", 49, attempt=2), *STORY[4:])),
    ("I13", "timed out early", history(*STORY[:2], timed_out("a", 20), all_end=False)),
    ("I13", "its next moment was", history(*STORY[:6], at_ms=160 + 10_001, all_end=False)),
    ("I14", "under epoch 1 after 2", changed(4, epoch=2)(whole())),
    ("I14", "under epoch 1 during 2", also(leases=(), reigns=(Reign(3, 2, 9),))),
    ("I14", "leased under epoch 0", also(leases=(Held(3, 0, "srv_1", 5.0),))),
    ("I15", "was never sent, for", history(*STORY[:2], at_ms=10_011, all_end=False, sent=sent())),
    ("I15", "has a result and was never sent", also(sent=sent(("a", 1), ("a", 2)))),
    ("I16", "succeeded after it was cancelled", history(*CANCELLED[:3], succeeded("a", 25), CANCELLED[4])),
    ("I16", "completed after it was cancelled", history(*CANCELLED[:4], happened.ExecutionCompleted(30, {}))),
    ("I19", "is still running", history(*STORY[:4])),
    ("I19", "ended 80 ms after", also(ends_within_ms=79)),
    ("I20", "process 7", also(left_behind=("process 7 still runs",))),
]  # fmt: skip


@pytest.mark.parametrize(("invariant", "words", "broken"), BROKEN, ids=[f"{name} {words}" for name, words, _ in BROKEN])
def test_a_broken_history_is_found_out(invariant, words, broken):
    found = violations(broken)

    assert [str(one) for one in found if one.invariant == invariant and words in one.what], found
    with pytest.raises(AssertionError, match=invariant):
        assert_holds(broken)


def test_every_invariant_has_a_history_that_breaks_it():
    assert {name for name, _, _ in BROKEN} == set(INVARIANTS)


def test_a_bus_that_forgot_may_have_an_attempt_run_again_but_no_effect_that_happens_once_at_most():
    again = (effect("b", 1), effect("b", 1))

    assert_holds(also(effects=again, bus_forgot=True))
    assert violations(also(effects=tuple(msgspec.structs.replace(one, at_most_once=True) for one in again)))


def test_a_process_that_names_the_folder_of_a_test_is_found(tmp_path):
    host = Host(tmp_path)
    assert host.left_behind() == ()

    with psutil.Popen(["sleep", "60"], env={"AF_HOME": str(tmp_path / "home")}) as left:
        assert str(left.pid) in "".join(host.left_behind())
        left.kill()
    assert host.left_behind() == ()


def test_files_that_were_opened_and_not_closed_are_found(tmp_path):
    host = Host(tmp_path)
    opened = [(tmp_path / "file").open("w") for _ in range(20)]

    assert "20 more files" in "".join(host.left_behind())
    for one in opened:
        one.close()
    assert host.left_behind() == ()
