"""The shell around the policies: waits for the rate, asks the circuit, keeps to the bulkhead, tries again quickly.

A `GuardedAgent` is an `Agent` around another one, made by `wiring` where the agents file asks for any of this.
Which guard a call meets is its tool's, else the agent's own. Quick retries happen inside one attempt and before its
deadline; they are for a blip on the line, the workflow's `retry` is for the rest.
"""

import asyncio
import random
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import structlog

from agentflow.clock import Clock
from agentflow.contracts.step import StepFault, StepRequest
from worker.agents.agent import Agent, Starts, StepContext
from worker.outcome import StepFailed, fault_of
from worker.policies.circuit import Circuit, CircuitRules
from worker.policies.rate import Rate, RateRules

log = structlog.get_logger(__name__)


class QuickRetry(msgspec.Struct, frozen=True):
    """How often a call is tried within one attempt of a step, and the growing pauses between."""

    tries: int = 1
    initial_s: float = 0.1
    multiplier: float = 2.0
    max_s: float = 2.0

    def pause_s(self, failures: int, chance: float) -> float:
        """Full jitter: callers that failed together must not come back together."""
        return min(self.max_s, self.initial_s * self.multiplier ** min(failures - 1, 64)) * chance


class Policy(msgspec.Struct, frozen=True):
    retry: QuickRetry = QuickRetry()
    rate: RateRules | None = None
    circuit: CircuitRules | None = None
    bulkhead: int | None = None  # calls at once, of all the agent's steps

    @property
    def is_empty(self) -> bool:
        return self == Policy()


class Guard:
    """One policy's living state: shared by all calls of the agent or tool it protects."""

    def __init__(self, name: str, policy: Policy, *, clock: Clock, chance: Callable[[], float] = random.random) -> None:
        self._name = name
        self._policy = policy
        self._clock = clock
        self._chance = chance
        self._rate = Rate(policy.rate) if policy.rate else None
        self._circuit = Circuit(policy.circuit) if policy.circuit else None
        self._room = asyncio.Semaphore(policy.bulkhead) if policy.bulkhead else None

    async def run(self, agent: Agent, request: StepRequest, context: StepContext) -> Any:
        failures = 0
        while True:
            try:
                return await self._within_bulkhead(agent, request, context)
            except (Exception, SystemExit) as error:
                failures += 1
                pause_s = self._policy.retry.pause_s(failures, self._chance())
                fault = fault_of(error)
                if not self._worth_another_try(fault, failures, pause_s, context):
                    raise
                log.info(
                    "call.tried_again",
                    name=self._name,
                    execution=context.execution_id,
                    step=context.step,
                    code=fault.code,
                    after_s=round(pause_s, 3),
                )
                await self._clock.sleep(pause_s)

    def _worth_another_try(self, fault: StepFault, failures: int, pause_s: float, context: StepContext) -> bool:
        return (
            fault.retryable
            and fault.code not in ("circuit_open", "rate_limited")  # it would only be told the same
            and failures < self._policy.retry.tries
            and pause_s < context.remaining_s
        )

    async def _within_bulkhead(self, agent: Agent, request: StepRequest, context: StepContext) -> Any:
        if self._room is None:
            return await self._through_circuit(agent, request, context)
        async with self._room:
            return await self._through_circuit(agent, request, context)

    async def _through_circuit(self, agent: Agent, request: StepRequest, context: StepContext) -> Any:
        await self._wait_turn(context)
        if self._circuit is None:
            return await agent.run(request, context)
        era = self._circuit.admit(self._clock.monotonic_s())
        if era is None:
            rest_s = self._circuit.closed_in_s(self._clock.monotonic_s())
            refused = f"{self._name} failed too often; it is not called for another {rest_s:.1f} s."
            raise StepFailed(StepFault("circuit_open", refused, retryable=True))
        try:
            output = await agent.run(request, context)
        except asyncio.CancelledError:
            # Cut off by its deadline, it was too slow; cut off by its caller, it did nothing wrong.
            if context.remaining_s <= 0:
                self._failed(era)
            else:
                self._circuit.abandoned(era)
            raise
        except BaseException as error:
            # Only trouble that may pass says that the other side is unwell; a refusal of this input does not.
            if fault_of(error).retryable:
                self._failed(era)
            else:
                self._circuit.succeeded(era)
            raise
        self._circuit.succeeded(era)
        return output

    async def _wait_turn(self, context: StepContext) -> None:
        if self._rate is None:
            return
        wait_s = self._rate.take(self._clock.monotonic_s(), patience_s=max(0.0, context.remaining_s))
        if wait_s is None:
            full = f"The rate limit of {self._name} leaves no room before the step's deadline."
            raise StepFailed(StepFault("rate_limited", full, retryable=True))
        if wait_s > 0:
            await self._clock.sleep(wait_s)

    def _failed(self, era: int) -> None:
        if self._circuit is None:
            return
        now_s = self._clock.monotonic_s()
        before = self._circuit.state(now_s)
        self._circuit.failed(era, now_s)
        after = self._circuit.state(now_s)
        if after is not before:
            log.warning("circuit.changed", name=self._name, before=before.value, now=after.value)


class GuardedAgent:
    def __init__(self, agent: Agent, own: Guard | None, *, tools: Mapping[str, Guard] | None = None) -> None:
        self._agent = agent
        self._own = own
        self._tools = tools or {}

    async def start(self) -> None:
        if isinstance(self._agent, Starts):
            await self._agent.start()

    async def run(self, request: StepRequest, context: StepContext) -> Any:
        guard = self._tools.get(request.tool or "", self._own)
        if guard is None:
            return await self._agent.run(request, context)
        return await guard.run(self._agent, request, context)

    async def close(self) -> None:
        await self._agent.close()
