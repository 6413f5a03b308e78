import asyncio
import threading

import pytest

from agentflow.contracts.step import StepRequest
from worker.agents.agent import StepContext
from worker.agents.function import FunctionAgent
from worker.agents.loading import AgentNotImportable, load
from worker.outcome import StepFailed


@pytest.fixture
def request_(asked):
    return asked(input={"n": 2}).read(StepRequest)


CONTEXT = StepContext("exec_1", "classify", 1, "key", 0)


async def doubled_async(input):
    return {"n": input["n"] * 2}


def doubled(input):
    return {"n": input["n"] * 2}


async def told_async(input, context):
    return {"key": context.effect_key}


def told(input, *, context):
    return {"key": context.effect_key}


@pytest.mark.parametrize(
    ("function", "output"),
    [(doubled_async, {"n": 4}), (doubled, {"n": 4}), (told_async, {"key": "key"}), (told, {"key": "key"})],
)
async def test_a_function_gets_the_input_and_the_context_if_it_asks(request_, function, output):
    agent = FunctionAgent("a", function, concurrency=1)

    assert await agent.run(request_, CONTEXT) == output
    await agent.close()


@pytest.mark.parametrize("error", [ValueError("no"), StopIteration(), SystemExit(1)], ids=["error", "stop", "exit"])
async def test_what_a_function_raises_in_its_thread_reaches_the_step(request_, error):
    def fails(input):
        raise error

    agent = FunctionAgent("a", fails, concurrency=1)

    with pytest.raises((type(error), RuntimeError)) as caught:  # Python turns StopIteration in a coroutine into that
        await agent.run(request_, CONTEXT)
    assert error in (caught.value, caught.value.__cause__)
    await agent.close()


async def test_sync_functions_run_beside_each_other_and_not_on_the_event_loop(request_):
    both = threading.Barrier(2, timeout=5)

    def meets(input):
        both.wait()
        return threading.current_thread() is threading.main_thread()

    agent = FunctionAgent("a", meets, concurrency=2)

    assert await asyncio.gather(agent.run(request_, CONTEXT), agent.run(request_, CONTEXT)) == [False, False]
    await agent.close()


async def test_functions_that_hang_cost_their_threads_and_then_steps_are_refused_as_retryable(request_):
    freed = threading.Event()
    agent = FunctionAgent("a", lambda _: freed.wait(10), concurrency=1)

    for _ in range(2):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await agent.run(request_, CONTEXT)
    with pytest.raises(StepFailed) as caught:
        await agent.run(request_, CONTEXT)

    assert (caught.value.fault.code, caught.value.fault.retryable) == ("agent_stuck", True)
    freed.set()
    await agent.close()


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        ("no_such_module_here:f", "ModuleNotFoundError"),
        ("json:no_such", "AttributeError"),
        ("json:__doc__", "not callable"),
    ],
)
def test_a_function_that_cannot_be_loaded_is_a_clear_error(call, reason):
    with pytest.raises(AgentNotImportable, match=reason) as caught:
        load("classifier", call)

    assert caught.value.code == "AF1303"
    assert "classifier" in caught.value.message


def test_a_function_may_stand_inside_a_class():
    assert load("a", "collections:OrderedDict.fromkeys") is not None
