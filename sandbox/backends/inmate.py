"""One started sandbox, good for exactly one call: asked, judged, ended. What all backends but `wasm` share.

A backend knows how to start one (`Inmate`); this file knows what to do with it: deadlines, the bound of the answer,
cancellation, and that nothing of it runs on afterwards. `pool` may have started it before its call was known.
"""

import asyncio
import hashlib
import os
from typing import Protocol

from sandbox.backends.exchange import (
    REPORT_BYTES_MAX,
    Ending,
    Judgement,
    TooLarge,
    judge,
    said_too_much,
    took_too_long,
)
from sandbox.policy import ExecProfile, Isolation, profile_hash
from sandbox.tool_call import SandboxOutcome

_TENANT_USERS = 1 << 30  # user ids nobody else on a machine has


class Inmate(Protocol):
    @property
    def layers(self) -> tuple[str, ...]: ...

    async def ready(self) -> None:
        """Return once it waits for its call; raise if it never will."""
        ...

    async def open_door(self, proxy: str) -> None:
        """Let it reach the egress proxy, which listens at this path outside."""
        ...

    async def ask(self, frame: bytes, *, answer_bytes_max: int, logs: bytearray) -> Ending:
        """Hand it its call and hear its answer. Raises `TooLarge`."""
        ...

    async def end(self) -> None:
        """Nothing of it runs when this returns. Harmless to repeat."""
        ...

    async def discard(self) -> None:
        """Remove what it leaves on disk; after `end`."""
        ...


def user_of(tenant: str) -> int:
    """The user that this tenant's tools are. Only root can become somebody else; others stay who they are."""
    if os.getuid() != 0:
        return os.getuid()
    digest = hashlib.sha256(tenant.encode()).digest()
    return _TENANT_USERS + int.from_bytes(digest[:4], "big") % _TENANT_USERS


async def perform(
    inmate: Inmate, frame: bytes, profile: ExecProfile, *, backend: str, isolation: Isolation, proxy: str | None
) -> SandboxOutcome:
    loop = asyncio.get_running_loop()
    started = loop.time()
    logs = bytearray()
    try:
        if proxy is not None and profile.egress:
            await inmate.open_door(proxy)
        async with asyncio.timeout(profile.wall_s):
            ending = await inmate.ask(frame, answer_bytes_max=profile.output_bytes + REPORT_BYTES_MAX, logs=logs)
        judgement = judge(ending, profile)
    except TimeoutError:
        judgement = took_too_long(profile)
    except TooLarge:
        judgement = said_too_much(profile)
    finally:
        await asyncio.shield(inmate.end())
    return outcome(judgement, profile, backend, isolation, inmate.layers, loop.time() - started, bytes(logs))


def outcome(
    judgement: Judgement,
    profile: ExecProfile,
    backend: str,
    isolation: Isolation,
    layers: tuple[str, ...],
    duration_s: float,
    logs: bytes = b"",
) -> SandboxOutcome:
    report = judgement.report
    return SandboxOutcome(
        isolation=isolation,
        profile_hash=profile_hash(profile),
        duration_s=duration_s,
        output=judgement.output,
        fault=judgement.fault,
        exit_code=report.exit_code if report else None,
        cpu_s=report.cpu_s if report else 0.0,
        max_rss_bytes=report.max_rss_bytes if report else 0,
        logs=logs.decode(errors="replace"),
        backend=backend,
        layers=layers,
    )
