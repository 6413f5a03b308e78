"""An agent with states: each is claimed when a step needs it, lived with, saved, and let go when it has been idle.

Around a function or a class with hooks; one living instance for each state, and one step at a time in each. A step
that succeeds is in the state before its result is told; one that fails leaves the state as it was. Waking up is
nothing but the next step; moving to another worker is that worker's claim.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import structlog

from agentflow.clock import Clock
from agentflow.contracts.agent_state import StateRef
from agentflow.contracts.step import ReleaseState, StepFault, StepRequest
from agentflow.ids import AgentName
from worker.agents.agent import Agent, Starts, StepContext
from worker.agents.hooks import AgentLife
from worker.outcome import StepFailed, fault_of
from worker.states.desk import Fenced, StateDesk
from worker.states.memory import Memory, pack, unpack

log = structlog.get_logger(__name__)

_LOOK_S = 0.25
_GOODBYE_S = 5.0
_INSTANCE_CHARS_MAX = 256


class StateRules(msgspec.Struct, frozen=True):
    key: str | None = None  # the input's field (dots go deeper) that names the state; None: the agent has one
    checkpoint: str = "after_step"  # after_step, periodic, manual
    every_s: float = 30.0
    hibernate_after_s: float = 300.0


class _Life:
    """A state that is here, or about to be."""

    def __init__(self, ref: StateRef, used_at_s: float) -> None:
        self.ref = ref
        self.turn = asyncio.Lock()
        self.agent: Agent | None = None  # None: asleep
        self.memory = Memory()
        self.version = 0
        self.saved = b""
        self.saved_at_s = used_at_s
        self.used_at_s = used_at_s
        self.is_wanted_elsewhere = False


class StatefulAgent:
    def __init__(
        self,
        name: AgentName,
        make: Callable[[AgentLife], Agent],
        rules: StateRules,
        *,
        desk: StateDesk,
        clock: Clock,
    ) -> None:
        self._name = name
        self._make = make
        self._rules = rules
        self._desk = desk
        self._clock = clock
        self._lives: dict[StateRef, _Life] = {}
        self._keeper: asyncio.Task[None] | None = None

    @property
    def awake(self) -> int:
        return sum(life.agent is not None for life in self._lives.values())

    async def start(self) -> None:
        self._keeper = asyncio.create_task(self._keep(), name=f"states of {self._name}")

    async def run(self, request: StepRequest, context: StepContext) -> Any:
        ref = StateRef(context.tenant, self._name, _instance(self._rules.key, request.input))
        while True:
            life = self._lives.get(ref)
            if life is None:
                life = self._lives[ref] = _Life(ref, self._clock.monotonic_s())
            async with life.turn:
                if self._lives.get(ref) is not life:
                    continue  # let go while we waited for our turn
                try:
                    return await self._step(life, request, context)
                except Fenced:
                    self._forget(life)
                    gone = "Another worker has taken over this agent's state."
                    raise StepFailed(StepFault("state_fenced", gone, retryable=True)) from None
                finally:
                    life.used_at_s = self._clock.monotonic_s()

    async def close(self) -> None:
        """All that is awake goes to sleep where the next worker finds it."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        await asyncio.gather(*(self._let_go(life, "hibernate") for life in list(self._lives.values())))

    def release(self, order: ReleaseState) -> None:
        """Another worker asks for a state: after the step that runs in it."""
        life = self._lives.get(StateRef(order.tenant, order.agent, order.instance))
        if life is not None and not life.is_wanted_elsewhere:
            life.is_wanted_elsewhere = True
            task = asyncio.create_task(self._let_go(life, "migrate"))
            task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())

    async def _step(self, life: _Life, request: StepRequest, context: StepContext) -> Any:
        if life.agent is None:
            await self._wake(life, context.remaining_s)
        agent = life.agent
        if agent is None:
            raise Fenced
        if context.effect_key in life.memory.answers:
            return life.memory.answers[context.effect_key]  # done before; only its result got lost

        after_each = self._rules.checkpoint == "after_step"
        before = life.saved if after_each else pack(life.memory)

        async def save() -> None:
            nonlocal before
            await self._save(life, "manual", context.remaining_s)
            before = life.saved

        own = msgspec.structs.replace(context, state=life.memory.state, save=save)
        try:
            output = await agent.run(request, own)
            life.memory.answered(context.effect_key, output)
            if after_each:
                await self._save(life, "step", context.remaining_s)
        except BaseException:
            _restore(life, before)
            raise
        return output

    async def _wake(self, life: _Life, within_s: float) -> None:
        claimed = await self._desk.claim(life.ref, within_s=within_s)
        life.version, life.saved = claimed.version, claimed.data
        life.memory = unpack(claimed.data)
        life.is_wanted_elsewhere = False
        agent = self._make(AgentLife(self._name, life.ref.instance, life.ref.tenant, life.memory.state))
        if isinstance(agent, Starts):
            await agent.start()
        life.agent = agent
        life.saved_at_s = self._clock.monotonic_s()
        log.debug("agent_state.awake", agent=self._name, instance=life.ref.instance, version=life.version)

    async def _save(self, life: _Life, why: str, within_s: float, *, release: bool = False) -> None:
        data = pack(life.memory)
        if data == life.saved and not release:
            life.saved_at_s = self._clock.monotonic_s()
            return  # nothing new to keep
        life.version = await self._desk.save(
            life.ref, life.version, data, why, release=release, within_s=min(within_s, 60.0)
        )
        life.saved, life.saved_at_s = data, self._clock.monotonic_s()

    async def _keep(self) -> None:
        while True:
            await self._clock.sleep(_LOOK_S)
            now_s = self._clock.monotonic_s()
            for life in list(self._lives.values()):
                if life.turn.locked():
                    continue
                if now_s - life.used_at_s > self._rules.hibernate_after_s:
                    await self._let_go(life, "hibernate")
                elif self._rules.checkpoint == "periodic" and now_s - life.saved_at_s > self._rules.every_s:
                    await self._save_quietly(life)

    async def _save_quietly(self, life: _Life) -> None:
        async with life.turn:
            if life.agent is None:
                return
            try:
                await self._save(life, "periodic", _GOODBYE_S)
            except Fenced:
                self._forget(life)
            except Exception as error:  # noqa: BLE001 - the next look tries again
                log.warning("agent_state.unsaved", agent=self._name, reason=fault_of(error).message)

    async def _let_go(self, life: _Life, why: str) -> None:
        async with life.turn:
            agent = life.agent
            if agent is not None:
                try:
                    await agent.close()  # `on_finish` may still write into the state
                    await self._save(life, why, _GOODBYE_S, release=True)
                except Fenced:
                    log.info("agent_state.fenced", agent=self._name, instance=life.ref.instance)
                except Exception as error:  # noqa: BLE001 - it stays claimed until we are counted as lost
                    log.warning("agent_state.unsaved", agent=self._name, reason=fault_of(error).message)
            self._forget(life)

    def _forget(self, life: _Life) -> None:
        life.agent = None
        life.memory = Memory()
        if self._lives.get(life.ref) is life:
            del self._lives[life.ref]


def _restore(life: _Life, before: bytes) -> None:
    """Back to what it was. In place: the living object holds on to the same mapping."""
    was = unpack(before)
    life.memory.state.clear()
    life.memory.state.update(was.state)
    life.memory.answers = was.answers


def _instance(key: str | None, input: Any) -> str:
    if key is None:
        return ""
    found = input
    for part in key.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    is_name = isinstance(found, str | int) and not isinstance(found, bool)
    if not is_name or not 0 < len(str(found)) <= _INSTANCE_CHARS_MAX:
        missing = f"The input's `{key}` must be a text or a whole number of at most {_INSTANCE_CHARS_MAX} characters: "
        raise StepFailed(StepFault("state_key_missing", missing + "it names the agent's state."))
    return str(found)
