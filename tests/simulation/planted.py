"""Bugs to plant: one line of the product each, as somebody might write it on a bad day, and how soon it must be found.

A bug is a piece of source and what stands in its place. The piece must be there: when the code moves on, so must the
bug.
"""

import importlib
import inspect
import sys
import textwrap
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple
from unittest import mock


class Planted(NamedTuple):
    name: str
    where: str  # module:function or module:Class.method
    right: str
    wrong: str
    seeds: int  # it is found in one of so many days
    ways: tuple[str, ...] = ()  # what breaks on those days, where only that can bring it out
    first: int = 0  # a day shortly before one that is known to find it, so that nobody waits for long


CONTROL = "control_plane.orchestrator"
BUGS = [
    Planted(
        "a result is acked before it is committed",
        f"{CONTROL}.results:Results.receive",
        "self._take(",
        "delivery.ack(); self._take(",
        400,
    ),
    Planted(
        "a result that is handed over is confirmed before it is committed",
        f"{CONTROL}.results:Results.hand_over",
        "return handed.answer",
        "handed.answer.cancel(); early = asyncio.Future(); early.set_result(bundled(ResultsTaken([]))); return early",
        400,
    ),
    Planted(
        "a result that its owner does not take is not published either",
        "worker.reporter:Reporter._deliver",
        "if underway.owner is None or not await",
        "if underway.owner is None or await",
        400,
    ),
    Planted(
        "the database does not look at the lease",
        "control_plane.storage.append:_allowed",
        "if not rows.epochs.items() <= _leases(connection, rows.known).items():",
        "if False:",
        400,
        first=560,
    ),
    Planted(
        "a late attempt's result is taken",
        "agentflow.execution.decide:_step_reported",
        "if flight is None or flight.attempt != message.attempt:",
        "if flight is None:",
        400,
    ),
    Planted(
        "a retry keeps its attempt's number",
        "agentflow.execution.draft:Draft.try_again",
        "attempt=last.attempt + 1",
        "attempt=last.attempt",
        50,
    ),
    Planted(
        "nothing is sent again",
        f"{CONTROL}.sweeper:Sweeper._due",
        "while line and line[0].at_s <= now_s - after_s:",
        "while False:",
        200,
    ),
    Planted(
        "who takes an execution up does not ask what was sent",
        f"{CONTROL}.commit_loop:CommitLoop.adopt",
        "for command in pending_commands(state):",
        "for command in ():",
        400,
    ),
    Planted(
        "who takes an execution up sets no timer",
        f"{CONTROL}.commit_loop:CommitLoop.adopt",
        "self._timers.arm(state.execution, next_wakeup(state))",
        "pass",
        400,
    ),
    Planted(
        "timers fire before their time",
        "agentflow.execution.decide:_time_reached",
        "if due_at_ms(key) > now:",
        "if due_at_ms(key) > now + 300:",
        400,
    ),
    Planted(
        "a timer that fired stays set",
        "agentflow.execution.evolve:_wait",
        "return replace(state, version=version, timers=state.timers.without(event.key), due=due)",
        "return replace(state, version=version)",
        50,
    ),
    Planted(
        "a request that comes again is taken again",
        "agentflow.execution.decide:decide",
        "elif message.id not in state.seen:",
        "else:",
        400,
    ),
    Planted(
        "a key that was used gives another execution",
        "control_plane.service:ControlPlane.id_for",
        "return reserved.resource",
        "return wanted.resource",
        100,
    ),
    Planted(
        "a key is not compared with its request",
        "control_plane.service:ControlPlane.id_for",
        "if reserved.body_hash != wanted.body_hash:",
        "if False:",
        100,
    ),
    Planted(
        "a snapshot says it is one event older",
        "control_plane.storage.append:rows_of",
        "snapshots[execution] = (execution, tenant, version, FORMAT, data)",
        "snapshots[execution] = (execution, tenant, version - 1, FORMAT, data)",
        50,
    ),
    Planted(
        "what may not have been committed is remembered",
        f"{CONTROL}.commit_loop:CommitLoop._forget",
        "self._open.pop(draft.state.execution, None)",
        "self._open[draft.state.execution] = draft.state",
        400,
    ),
    Planted(
        "what is being written is decided upon as if it were not",
        f"{CONTROL}.commit_loop:CommitLoop._fill",
        "if written is not None and arrival.execution in written.drafts:",
        "if False:",
        400,
    ),
    Planted(
        "a commit that failed counts as done",
        f"{CONTROL}.commit_loop:CommitLoop._is_durable",
        "over.result()",
        "pass",
        400,
    ),
    Planted(
        "what follows from a write that failed is sent and told",
        f"{CONTROL}.commit_loop:CommitLoop._is_durable",
        "self._forget(over, error)",
        "self._forget(over, error); is_durable = True",
        100,
    ),
    Planted(
        "what waits behind a write is decided upon it though it failed",
        f"{CONTROL}.commit_loop:CommitLoop._is_durable",
        "self._forget(over, error)",
        "self._forget(over, error); batch.drafts.update(over.drafts)",
        100,
    ),
    Planted(
        "steps are sent before they are committed",
        f"{CONTROL}.commit_loop:CommitLoop._append",
        "batch.epochs = dict(self._epochs)\n",
        "batch.epochs = dict(self._epochs)\n"
        "    for draft in batch.moved:\n"
        "        for command in draft.commands:\n"
        "            await self._performer.perform(draft.state, command)\n",
        400,
    ),
    Planted(
        "a step that comes a second time is run a second time",
        "worker.mailbox:Mailbox._delivered",
        "elif delivery.deliveries > 1 or request.again:",
        "elif False:",
        400,
    ),
    Planted(
        "a step is acked before it is done",
        "worker.mailbox:Mailbox._see_through",
        "held.has_begun = True",
        "held.has_begun = True; held.deliveries[-1].ack()",
        2_000,
        ways=("kill",),
    ),
    Planted(
        "a result that the stream lost is not sent again",
        "worker.mailbox:Mailbox._see_sent",
        "if not await self._reporter.send_again(held.dedup_id):",
        "if False:",
        2_000,
        ways=("database_away", "wipe_bus"),
    ),
    Planted(
        "a lost shard stays in memory",
        f"{CONTROL}.orchestrator:Orchestrator._let_go",
        "self._open.pop(execution).in_flight",
        "self._open[execution].in_flight",
        400,
    ),
    Planted(
        "what was committed for a shard that has gone is remembered",
        f"{CONTROL}.commit_loop:CommitLoop._remember",
        "if self._is_held(state.execution, epochs):",
        "if True:",
        2_000,
        ways=("leave", "kill"),
        first=140,
    ),
    Planted(
        "a shard that could not be given back is held for ever",
        f"{CONTROL}.ownership:Ownership._renew",
        "if unserved:",
        "if False:",
        2_000,
        first=160,
    ),
    Planted(
        "nobody looks for a child that is silent",
        f"{CONTROL}.performer:Performer.catch_up",
        "while self._looks and self._looks[0].at_s <= now_s:",
        "while False:",
        1_000,
    ),
    Planted(
        "what has ended can go on",
        "agentflow.execution.decide:decide",
        "if state.ended and not (",
        "if False and not (",
        400,
    ),
    Planted(
        "every attempt has a key of its own",
        f"{CONTROL}.outbound:Outbound.step_message",
        'effect_key=f"{state.tenant}/{state.execution}/{command.path}"',
        'effect_key=f"{state.tenant}/{state.execution}/{command.path}#{command.attempt}"',
        50,
    ),
    Planted(
        "a new owner overlooks the last of its shards",
        f"{CONTROL}.orchestrator:Orchestrator._recover",
        "self._store.open_executions(sorted(shards))",
        "self._store.open_executions(sorted(shards)[:-1])",
        400,
    ),
]


@contextmanager
def planted(bug: Planted) -> Iterator[None]:
    module_name, _, path = bug.where.partition(":")
    module = importlib.import_module(module_name)
    owner: Any = module
    *classes, name = path.split(".")
    for each in classes:
        owner = getattr(owner, each)
    source = textwrap.dedent(inspect.getsource(getattr(owner, name)))
    assert source.count(bug.right) == 1, f"{bug.where} has moved on: plant `{bug.name}` anew"
    made: dict[str, Any] = {}
    # The globals of its own module, so that it calls what the module calls.
    exec(compile(source.replace(bug.right, bug.wrong), f"<planted: {bug.name}>", "exec"), vars(module), made)
    right = getattr(owner, name)
    # Whoever has imported it by name has it under that name.
    users = [owner] if classes else [each for each in list(sys.modules.values()) if vars(each).get(name) is right]
    with ExitStack() as patches:
        for user in users:
            patches.enter_context(mock.patch.object(user, name, made[name]))
        yield
