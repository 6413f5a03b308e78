"""The workflows of each tenant: registered once, immutable, found by id, by name or by name and version.

Asked by the API (register, find, check an input) and by the orchestrator (the program an execution is pinned to).
Compiling is the planners' work and storing is `control_plane.storage`'s, behind the port `WorkflowStore`.
"""

import asyncio
import re
from collections.abc import Sequence
from typing import Any, Literal, Protocol

import msgspec

from agentflow.clock import Clock
from agentflow.errors import Bug, Conflict, Invalid, NotFound, Problem
from agentflow.execution.events import WorkflowRef
from agentflow.execution.program import Program
from agentflow.ids import TenantId, UlidSource, WorkflowId
from agentflow.limits import (
    CHILDREN_FOLLOWED_MAX,
    NEWEST_VERSION_KNOWN_S,
    PLANS_CACHED_MAX,
    PROGRAMS_CACHED_MAX,
    SUGGESTION_NAMES_MAX,
    VERSIONS_LISTED_MAX,
)
from agentflow.ports import Startable
from agentflow.workflow.durations import parse_duration
from agentflow.workflow.load import InvalidWorkflow, read
from agentflow.workflow.model import Workflow
from agentflow.workflow.references import child_workflows
from agentflow.workflow.source_map import Document, path_text
from agentflow.workflow.suggest import did_you_mean
from control_plane.audit.notes import concerning
from control_plane.registry.recent import Recent
from control_plane.registry.schemas import InputSchema, compile_schema, input_problems, schema_faults
from control_plane.registry.tool_use import tool_problems, tools_named
from control_plane.registry.tools import ToolRegistry
from control_plane.registry.versions import highest, precedence
from planners.kinds import CompiledWorkflow, compile_workflow
from planners.plan import Plan

_ID = re.compile(r"wf_[0-9A-HJKMNP-TV-Z]{26}")
_INPUT = ("spec", "input")
_VERSIONS_SHOWN = 5
_UNREGISTERED = WorkflowId("")


class WorkflowSummary(msgspec.Struct, frozen=True, kw_only=True):
    id: WorkflowId
    tenant: TenantId
    name: str
    version: str
    digest: str
    planner: str
    created_at_ms: int

    @property
    def ref(self) -> WorkflowRef:
        return WorkflowRef(self.id, self.name, self.version, self.digest)


class RegisteredWorkflow(WorkflowSummary, frozen=True, kw_only=True):
    source: str  # as it was sent; programs are compiled from it
    definition: dict[str, Any]  # the same, as plain data

    @property
    def timeout_ms(self) -> int | None:
        return parse_duration(self.definition["spec"].get("timeout", ""))

    @property
    def concurrency(self) -> int | None:
        """How many executions of it may be under way at once."""
        most: int | None = self.definition["spec"].get("concurrency")
        return most


class WorkflowFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Everything given must fit; nothing given fits all."""

    name: str | None = None
    planner: str | None = None
    tag: str | None = None


WorkflowOrder = Literal["created_at", "name"]
_EVERY = WorkflowFilter()


class WorkflowStore(Protocol):
    async def add(
        self, tenant: TenantId, workflow: RegisteredWorkflow, *, newest: str | None = None
    ) -> RegisteredWorkflow:
        """Keep it, unless its name and version are taken; answers with what is stored under them now.

        With `newest`, only while the highest version of that name has this id: `WorkflowOvertaken` otherwise.
        """
        ...

    async def get(self, tenant: TenantId, workflow: WorkflowId) -> RegisteredWorkflow | None: ...

    async def named(self, tenant: TenantId, name: str, version: str) -> RegisteredWorkflow | None: ...

    async def latest(self, tenant: TenantId, name: str) -> RegisteredWorkflow | None:
        """The highest version by `control_plane.registry.versions.precedence`."""
        ...

    async def versions(self, tenant: TenantId, name: str) -> Sequence[str]: ...

    async def list(
        self,
        tenant: TenantId,
        wanted: WorkflowFilter,
        *,
        order: WorkflowOrder = "created_at",
        descending: bool = True,
        after: tuple[Any, ...] | None = None,
        limit: int,
    ) -> Sequence[WorkflowSummary]:
        """Newest first, or as asked; `after` is the value ordered by and the id of the last one that was shown."""
        ...

    async def count(self, tenant: TenantId, wanted: WorkflowFilter) -> int: ...

    async def names(self, tenant: TenantId, *, limit: int) -> Sequence[str]: ...


class WorkflowNotFound(NotFound):
    code = "AF1211"

    def __init__(self, reference: str, *, hint: str) -> None:
        super().__init__(f"There is no workflow `{reference}`.", hint=hint)


class VersionTaken(Conflict):
    code = "AF1212"

    def __init__(self, name: str, version: str) -> None:
        super().__init__(
            f"Version {version} of `{name}` is registered already, with another content.",
            hint="Raise `metadata.version`: a registered version never changes, because executions are pinned to it.",
        )


class WorkflowOvertaken(Conflict):
    code = "AF1224"

    def __init__(self, name: str, version: str | None) -> None:
        newest = f"its newest version is {version}" if version else "no version of it is registered"
        super().__init__(
            f"`{name}` is not as you have seen it: {newest}. Nothing was registered.",
            hint="Read the newest version, put your change on top of it, and push that.",
        )


class PlanNotFound(NotFound):
    code = "AF1225"

    def __init__(self, reference: str, plan: str) -> None:
        super().__init__(
            f"The workflow `{reference}` has no plan {plan!r}.",
            hint="Ask for the plan `current`, or name the version that had this one.",
        )


class InvalidInput(Invalid):
    code = "AF1213"

    def __init__(self, name: str, problems: Sequence[Problem]) -> None:
        super().__init__(
            f"The input does not fit the schema of `{name}`.",
            hint="Correct the places named; `spec.input` of the workflow says what it accepts.",
            problems=problems,
        )


class WorkflowRegistry:
    def __init__(
        self, store: WorkflowStore, *, ids: UlidSource, clock: Clock, tools: ToolRegistry | None = None
    ) -> None:
        self._store = store
        self._tools = tools
        self._ids = ids
        self._clock = clock
        # Both by digest: the content decides, so an entry is right for ever.
        self._programs: Recent[Program] = Recent(PROGRAMS_CACHED_MAX)
        self._schemas: Recent[InputSchema] = Recent(PROGRAMS_CACHED_MAX)
        # By tenant and reference. A version never changes; which one is the newest does, so that is only believed
        # for a moment, or until one is registered here.
        self._versions: Recent[RegisteredWorkflow] = Recent(PROGRAMS_CACHED_MAX)
        self._plans: Recent[Plan] = Recent(PLANS_CACHED_MAX)  # by digest, like programs
        self._tools_of: Recent[list[str]] = Recent(PROGRAMS_CACHED_MAX)  # by digest
        self._newest: Recent[tuple[float, RegisteredWorkflow]] = Recent(PROGRAMS_CACHED_MAX)

    async def register(
        self, tenant: TenantId, text: str, *, newest: str | None = None
    ) -> tuple[RegisteredWorkflow, bool]:
        """The workflow, and whether it is new. Sending the same content again changes nothing.

        With `newest`, the id of what its author took for the newest version: refused where that is another one.
        """
        # Hundreds of milliseconds for the largest definitions: other executions must not wait for it.
        compiled = await asyncio.to_thread(_compiled, text)
        wrong, _ = await self.tool_problems(tenant, compiled.document)
        if wrong:
            raise InvalidWorkflow(wrong)
        metadata = compiled.workflow.metadata
        await self._refuse_circles(tenant, metadata.name, compiled.document)
        candidate = RegisteredWorkflow(
            id=self._ids.workflow(),
            tenant=tenant,
            name=metadata.name,
            version=metadata.version,
            digest=compiled.digest,
            planner=compiled.workflow.spec.planner,
            created_at_ms=self._clock.now_ms(),
            source=text,
            definition=compiled.document.data,
        )
        concerning("workflow", f"{candidate.name}@{candidate.version}", digest=candidate.digest)
        stored = await self._store.add(tenant, candidate, newest=newest)
        if stored.digest != candidate.digest:
            raise VersionTaken(candidate.name, candidate.version)
        self._programs.keep(compiled.digest, compiled.program)
        self._newest.drop(_key(tenant, stored.name))
        return stored, stored.id == candidate.id

    async def tool_problems(self, tenant: TenantId, document: Document) -> tuple[list[Problem], list[Problem]]:
        """What is wrong for certain with how a workflow uses tools, and what may be."""
        if self._tools is None:
            return [], []
        return tool_problems(document, await self._tools.known(tenant, tools_named(document.data)))

    async def ref(self, tenant: TenantId, workflow: RegisteredWorkflow) -> WorkflowRef:
        """What a new execution is pinned to: the workflow, and the registered tools it names as they are now."""
        names = self._tools_of.get(workflow.digest)
        if names is None:
            names = self._tools_of.keep(workflow.digest, tools_named(workflow.definition))
        if not names or self._tools is None:
            return workflow.ref
        return msgspec.structs.replace(workflow.ref, tools=await self._tools.pins(tenant, names))

    async def _refuse_circles(self, tenant: TenantId, name: str, document: Document) -> None:
        """A workflow that would start itself through the newest versions of others would never stop starting."""
        for child, path in child_workflows(document.data):
            way = await self._way_back(tenant, child, name)
            if way is not None:
                line, column = document.position(path)
                message = f"Workflow `{name}` would start itself: {' → '.join(f'`{it}`' for it in (name, *way))}."
                hint = "Use a loop, or start another workflow."
                raise InvalidWorkflow([Problem(message, hint, line, column, path_text(path))])

    async def _way_back(self, tenant: TenantId, start: str, name: str) -> list[str] | None:
        """Through which workflows `start` leads to `name`, both included; None where it does not."""
        ways = {start: [start]}
        rest = [start]
        while rest and len(ways) <= CHILDREN_FOLLOWED_MAX:
            here = rest.pop(0)
            if here == name:
                return ways[here]
            found = await self._store.latest(tenant, here)
            for child, _ in child_workflows(found.definition) if found is not None else ():
                if child not in ways:
                    ways[child] = [*ways[here], child]
                    rest.append(child)
        return None

    async def find(self, tenant: TenantId, reference: str) -> RegisteredWorkflow:
        """By `wf_…`, by `name@1.2.0`, or by `name`, which means its newest release."""
        key = _key(tenant, reference)
        if _ID.fullmatch(reference) or "@" in reference:
            return self._versions.get(key) or await self._find_version(tenant, reference)
        now_s = self._clock.monotonic_s()
        known = self._newest.get(key)
        if known is not None and now_s - known[0] < NEWEST_VERSION_KNOWN_S:
            return known[1]
        if known is not None:
            self._newest.keep(key, (now_s, known[1]))  # one caller asks; the others need not
        found = await self._store.latest(tenant, reference)
        if found is None:
            raise WorkflowNotFound(reference, hint=await self._suggestion(tenant, reference))
        return self._newest.keep(key, (now_s, found))[1]

    async def resolve(self, tenant: TenantId, name: str, constraint: str, input: Any) -> Startable:
        """The highest version that a constraint such as `^1.2` allows, for this input.

        Raises `WorkflowNotFound` or `InvalidInput`.
        """
        version = highest(constraint, await self._store.versions(tenant, name))
        if version is None:
            reference = f"{name}@{constraint}"
            raise WorkflowNotFound(reference, hint=await self._suggestion(tenant, name))
        workflow = await self.find(tenant, f"{name}@{version}")
        self.check_input(workflow, input)
        return Startable(await self.ref(tenant, workflow), workflow.timeout_ms, workflow.concurrency)

    async def _find_version(self, tenant: TenantId, reference: str) -> RegisteredWorkflow:
        name, at, version = reference.partition("@")
        if at:
            found = await self._store.named(tenant, name, version)
        else:
            found = await self._store.get(tenant, WorkflowId(reference))
        if found is None:
            raise WorkflowNotFound(reference, hint=await self._suggestion(tenant, name))
        return self._versions.keep(_key(tenant, reference), found)

    async def _suggestion(self, tenant: TenantId, name: str) -> str:
        known = await self._store.list(tenant, WorkflowFilter(name=name), limit=_VERSIONS_SHOWN)
        if known:
            return f"Newest versions of `{name}`: {', '.join(workflow.version for workflow in known)}."
        names = await self._store.names(tenant, limit=SUGGESTION_NAMES_MAX)
        if not names:
            return "Register one first: `af workflow push FILE`."
        return did_you_mean(name, names, kind="workflows")

    async def list(
        self,
        tenant: TenantId,
        wanted: WorkflowFilter = _EVERY,
        *,
        order: WorkflowOrder = "created_at",
        descending: bool = True,
        after: tuple[Any, ...] | None = None,
        limit: int,
    ) -> Sequence[WorkflowSummary]:
        return await self._store.list(tenant, wanted, order=order, descending=descending, after=after, limit=limit)

    async def versions(self, tenant: TenantId, name: str) -> Sequence[WorkflowSummary]:
        """All of one name, the highest first."""
        found = await self._store.list(tenant, WorkflowFilter(name=name), limit=VERSIONS_LISTED_MAX)
        return sorted(found, key=lambda workflow: precedence(workflow.version), reverse=True)

    async def count(self, tenant: TenantId, wanted: WorkflowFilter = _EVERY) -> int:
        return await self._store.count(tenant, wanted)

    async def plan(self, tenant: TenantId, workflow: RegisteredWorkflow, plan: str = "current") -> Plan:
        """What this version will do. Raises `PlanNotFound` where its plan has another hash than the one asked for."""
        found = self._plans.get(workflow.digest)
        if found is None:
            found = self._plans.keep(workflow.digest, await asyncio.to_thread(_plan_of, workflow.source))
        if plan not in ("current", found.plan_hash):
            raise PlanNotFound(f"{workflow.name}@{workflow.version}", plan)
        return found

    async def program(self, tenant: TenantId, workflow: WorkflowRef) -> Program:
        """What an execution pinned to `workflow` follows, whatever has been registered since."""
        return self._programs.get(workflow.digest) or await self._compiled_again(tenant, workflow)

    async def candidate(self, text: str) -> tuple[WorkflowRef, Program, InputSchema | None]:
        """A definition compiled as `register` would, and not registered: what it is called, does and takes."""
        compiled = await asyncio.to_thread(_compiled, text)
        metadata, schema = compiled.workflow.metadata, compiled.workflow.spec.input
        ref = WorkflowRef(_UNREGISTERED, metadata.name, metadata.version, compiled.digest)
        return ref, compiled.program, None if schema is None else compile_schema(schema)

    async def _compiled_again(self, tenant: TenantId, workflow: WorkflowRef) -> Program:
        stored = await self._store.get(tenant, workflow.id)
        if stored is None:
            raise WorkflowNotFound(workflow.id, hint="An execution needs it; restore the database from a backup.")
        try:
            compiled = await asyncio.to_thread(compile_workflow, stored.source)
        except InvalidWorkflow as error:
            raise Bug(f"Workflow {stored.id} was registered, but this build cannot compile it: {error}") from error
        if compiled.digest != workflow.digest:
            raise Bug(f"Workflow {stored.id} compiles to another digest than the one executions are pinned to.")
        return self._programs.keep(workflow.digest, compiled.program)

    def check_input(self, workflow: RegisteredWorkflow, input: Any) -> None:
        """Raises `InvalidInput` with every problem. `input` has a canonical form (see `schemas.input_problems`)."""
        schema = workflow.definition["spec"].get("input")
        if schema is None:
            return
        accepts = self._schemas.get(workflow.digest) or self._schemas.keep(workflow.digest, compile_schema(schema))
        if problems := input_problems(accepts, input):
            raise InvalidInput(workflow.name, problems)


def _plan_of(source: str) -> Plan:
    return compile_workflow(source).program.plan()


def _key(tenant: TenantId, reference: str) -> str:
    return f"{tenant}/{reference}"


def _compiled(text: str) -> CompiledWorkflow:
    """Compiled, with its input schema proven usable. Problems of both are told in one answer."""
    try:
        compiled = compile_workflow(text)
    except InvalidWorkflow as error:
        loaded = read(text).loaded
        more = _schema_problems(loaded.workflow, loaded.document) if loaded else []
        raise InvalidWorkflow([*error.problems, *more]) from None
    if problems := _schema_problems(compiled.workflow, compiled.document):
        raise InvalidWorkflow(problems)
    return compiled


def _schema_problems(workflow: Workflow, document: Document) -> list[Problem]:
    schema = workflow.spec.input
    problems = []
    for path, message in schema_faults(schema) if schema is not None else ():
        line, column = document.position((*_INPUT, *path))
        problems.append(
            Problem(
                f"The input schema does not work: {message}.",
                hint="It must be JSON Schema, Draft 2020-12, without references to elsewhere.",
                line=line,
                column=column,
                path=path_text((*_INPUT, *path)),
            )
        )
    return problems
