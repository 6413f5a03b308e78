"""Calls that must not be made twice, counted where they have their effect, while processes are killed."""

import http.server
import json
import threading
from collections import Counter
from collections.abc import Iterator

import pytest

from agentflow.ids import ExecutionId, StepPath
from agentflow.testing import eventually
from tests.invariants.history import Effect

TOOLS = """
import http.client
import json
import os
import socket

BANK = "http://localhost:PORT"


class Way(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(os.environ["AGENTFLOW_EGRESS"])


def _asked(method, path, headers):
    way = Way("egress", timeout=60)
    way.request(method, BANK + path, headers={"Host": BANK.removeprefix("http://"), **headers})
    return json.loads(way.getresponse().read())


def pay(input, context):
    return _asked("POST", "/pay", {"Idempotency-Key": context.effect_key, "Attempt": str(context.attempt)})


def paid(asked):
    return _asked("GET", "/paid?" + asked["effect_key"], {})
"""
AGENTS = """
apiVersion: agentflow/v1
kind: Agents
tools:
  pay:
    {type: function, call: "tills:pay", effect: at_most_once, timeout: 60s,
     permissions: ["network.http:localhost:PORT"]}
  pay.looking:
    {type: function, call: "tills:pay", reconcile: "tills:paid", effect: at_most_once, timeout: 60s,
     permissions: ["network.http:localhost:PORT"]}
"""


def paying(tool: str) -> str:
    return f"""
apiVersion: agentflow/v1
kind: Workflow
metadata: {{name: paying, version: 1.0.0}}
spec:
  planner: fsm
  fsm:
    initial_state: only
    final_states: [only]
    states:
      only: {{tool: {tool}, timeout: 60s, retry: {{max_attempts: 5, initial: 10ms}}}}
"""


class Bank:
    """Books every payment before it answers, and answers no sooner than it is let."""

    def __init__(self) -> None:
        self.payments: Counter[str] = Counter()
        self.effects: list[Effect] = []
        self.may_answer = threading.Event()
        bank = self

        class Counters(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                key = self.headers["Idempotency-Key"]
                bank.payments[key] += 1
                _, execution, path = key.split("/", 2)
                attempt = int(self.headers["Attempt"])
                bank.effects.append(Effect(ExecutionId(execution), StepPath(path), attempt, key, at_most_once=True))
                bank.may_answer.wait(60)
                self._answer({"receipt": 1})

            def do_GET(self) -> None:
                done = bank.payments[self.path.partition("?")[2]] > 0
                self._answer({"done": done, "output": {"receipt": "found"}} if done else {"done": False})

            def _answer(self, value: dict) -> None:
                body = json.dumps(value).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_) -> None:
                """Quiet."""

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Counters)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def bank() -> Iterator[Bank]:
    opened = Bank()
    yield opened
    opened.may_answer.set()
    opened.server.shutdown()
    opened.server.server_close()


@pytest.fixture
def paying_world(world, bank: Bank, tmp_path):
    port = str(bank.server.server_address[1])
    (tmp_path / "tills.py").write_text(TOOLS.replace("PORT", port))
    (tmp_path / "agents.yaml").write_text(AGENTS.replace("PORT", port))
    return lambda: world(AF_EGRESS_PRIVATE="127.0.0.0/8,::1/128", AF_WORKER_LOST_S="2")


async def paid_for(here, bank: Bank, tool: str) -> str:
    """An execution whose payment is booked and whose worker was killed before it heard so."""
    here.evidence.effects = bank.effects
    await here.client.push_workflow(paying(tool))
    execution = (await here.client.execute("paying", {})).execution_id
    await eventually(lambda: bank.payments.total() == 1, within_s=30)
    here.platform.worker.kill()
    return execution


async def story(here, execution: str) -> list[str]:
    return [event.type.removesuffix(".v1") for event in await here.client.history(execution)]


async def test_a_payment_whose_result_was_lost_is_not_made_again_and_a_person_settles_it(paying_world, bank):
    async with paying_world() as here:
        execution = await paid_for(here, bank, "pay")

        async def doubted() -> bool:
            return bool((await here.client.execution(execution)).tasks)

        await eventually(doubted, within_s=40)
        (task,) = (await here.client.execution(execution)).tasks
        assert (task["kind"], task["evidence"]["tool"], task["evidence"]["attempt"]) == ("in_doubt", "pay", 1)
        here.platform.control_plane.kill()  # a doubt is as durable as everything else

        async def answered() -> bool:
            try:
                await here.client.answer(execution, task["path"], {"resolution": "done", "output": {"receipt": 1}})
            except Exception:  # noqa: BLE001 - it is being started again
                return False
            return True

        await eventually(answered, within_s=30)
        ended = await here.client.execution(execution)
        assert (ended.status, ended.output) == ("completed", {"receipt": 1})
        assert list(bank.payments.values()) == [1]
        told = await story(here, execution)
        assert told.index("step.claimed") < told.index("step.failed") < told.index("step.in_doubt")
        assert told[-2:] == ["step.settled", "execution.completed"]


async def test_a_tool_that_can_look_finds_its_payment_and_nobody_is_asked(paying_world, bank):
    async with paying_world() as here:
        execution = await paid_for(here, bank, "pay.looking")

        events = [event async for event in here.client.follow(execution)]

        ended = await here.client.execution(execution)
        assert (ended.status, ended.output) == ("completed", {"receipt": "found"})
        assert list(bank.payments.values()) == [1]
        assert "step.in_doubt.v1" not in {event.type for event in events}


async def test_a_payment_nobody_disturbs_is_claimed_and_made(paying_world, bank):
    async with paying_world() as here:
        bank.may_answer.set()
        here.evidence.effects = bank.effects
        await here.client.push_workflow(paying("pay"))

        ended = await here.client.execute("paying", {}, wait=True)

        assert (ended.status, ended.output) == ("completed", {"receipt": 1})
        assert await story(here, ended.execution_id) == [
            "execution.started", "step.scheduled", "step.claimed", "step.succeeded", "execution.completed",
        ]  # fmt: skip
