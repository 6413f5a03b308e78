"""The names on the bus, and that nothing but a plain token gets into one."""

import pytest

from agentflow import limits
from agentflow.bus import subjects
from agentflow.ids import AgentName


def matches(pattern: str, subject: str) -> bool:
    wanted, given = pattern.split("."), subject.split(".")
    return len(wanted) == len(given) and all(one in ("*", other) for one, other in zip(wanted, given, strict=True))


@pytest.mark.parametrize(
    ("subject", "stream"),
    [
        (subjects.workflow_in("support", 3, "default"), "AF_MESSAGES"),
        (subjects.workflow_out("support", 3), "AF_MESSAGES"),
        (subjects.agent_in("default", AgentName("classifier")), "AF_AGENTS"),
        (subjects.agent_out("default", AgentName("classifier")), "AF_AGENTS"),
        (subjects.of_pool(subjects.TOOL_CALLS, "default"), "AF_AUDIT"),
        (subjects.of_pool(subjects.TOOL_AUDIT, "default"), "AF_AUDIT"),
        (subjects.of_pool(subjects.TOOL_ANOMALY, "default"), "AF_AUDIT"),
    ],
)
def test_every_subject_is_stored_by_exactly_one_stream(subject: str, stream: str) -> None:
    takers = [spec.name for spec in subjects.STREAMS if any(matches(pattern, subject) for pattern in spec.subjects)]

    assert takers == [stream]


def test_heartbeats_are_stored_by_no_stream() -> None:
    heartbeats = subjects.of_pool(subjects.HEARTBEATS, "default")
    assert not any(matches(pattern, heartbeats) for spec in subjects.STREAMS for pattern in spec.subjects)


def test_streams_keep_messages_for_seven_three_and_thirty_days() -> None:
    days = {spec.name: spec.max_age_s / 86_400 for spec in subjects.STREAMS}

    assert days == {"AF_MESSAGES": 7, "AF_AGENTS": 3, "AF_AUDIT": 30}


def test_the_mailbox_of_an_agent_reads_its_own_steps_and_holds_no_more_than_its_concurrency() -> None:
    mailbox = subjects.agent_mailbox("default", AgentName("Fixer_2"), concurrency=7, ack_wait_s=12.5)

    assert (mailbox.stream, mailbox.name) == ("AF_AGENTS", "agent_Fixer_2@default")
    assert mailbox.subjects == ("agents.default.Fixer_2.in",)
    assert (mailbox.in_flight_max, mailbox.ack_wait_s) == (7, 12.5)
    assert mailbox.unacked_max == limits.AGENT_UNACKED_MAX


def test_a_shard_inbox_reads_what_is_for_its_shard_in_every_workflow_and_no_committed_events() -> None:
    inbox = subjects.shard_inbox(15)

    assert any(matches(pattern, subjects.workflow_in("support", 15, "default")) for pattern in inbox.subjects)
    assert not any(matches(pattern, subjects.workflow_in("support", 5, "default")) for pattern in inbox.subjects)
    assert not any(matches(pattern, subjects.workflow_out("support", 15)) for pattern in inbox.subjects)
    assert matches(subjects.shard_feed(15), subjects.workflow_out("support", 15))
    assert (inbox.name, inbox.in_flight_max) == ("shard_15", limits.INBOX_IN_FLIGHT_MAX)


@pytest.mark.parametrize("name", ["", "a.b", "*", ">", "two words", "line\nbreak", "ä", "x" * 65])
def test_an_agent_name_that_is_no_plain_token_is_refused(name: str) -> None:
    with pytest.raises(subjects.UnusableName) as refused:
        subjects.agent_in("default", AgentName(name))

    assert repr(name) in refused.value.message


@pytest.mark.parametrize("pool", ["", "a.b", "*", ">", "_other", "Acme", "two words", "line\nbreak", "x" * 64])
def test_a_pool_that_is_neither_a_tenant_nor_the_shared_one_is_refused(pool: str) -> None:
    with pytest.raises(subjects.UnusableName):
        subjects.of_pool(subjects.HEARTBEATS, pool)


def test_no_two_mailboxes_share_a_name() -> None:
    pairs = [("a", "b-c"), ("a-b", "c"), ("a", "b"), ("_shared", "b"), ("a-b-c", "d")]

    assert len({subjects.mailbox_name(pool, AgentName(agent)) for pool, agent in pairs}) == len(pairs)


@pytest.mark.parametrize("name", ["", "a.b", "*", ">", "Support", "two words", "line\nbreak", "x" * 129])
def test_a_workflow_name_that_is_no_plain_token_is_refused(name: str) -> None:
    with pytest.raises(subjects.UnusableName):
        subjects.workflow_in(name, 0, "default")
