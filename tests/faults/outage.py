"""A bus that is away for a while, under a working deployment: what is asked and what ends meanwhile, what follows.

`test_bus_away` has it away for longer than any period of the deployment, so that nothing in it could tell a longer one
apart. `python -m tests.faults.outage 300` is five minutes of it, with the periods that people get by default.
"""

import asyncio
import sys
import tempfile
from collections import Counter
from pathlib import Path

from agentflow.clock import SystemClock
from agentflow.devstack.nats import NatsServer, nats_server
from agentflow.devstack.postgres import postgres_server
from agentflow.execution.events import type_of
from agentflow.testing import eventually
from tests.faults.deployment import Deployment, deployed

BEFORE, DURING = 20, 20
DEFAULTS = {"AF_LEASE_S": "10", "AF_RESEND_AFTER_S": "10", "AF_ACK_WAIT_S": "30", "AF_WORKER_LOST_S": "5"}


async def bus_is_away(here: Deployment, nats: NatsServer, *, for_s: float, within_s: float, **env: str) -> float:
    """Returns how long the backlog took once the bus was back. Neither plane nor worker is touched."""
    worker = await here.worker(**env)
    plane = await here.plane(**env)
    for number in range(BEFORE):
        assert await here.start(plane, "line", key=f"before/{number}")
    await eventually(lambda: here.ran("patient") == BEFORE, within_s=60)

    nats.process.kill()
    await nats.process.wait()
    here.let_go()  # what runs ends while nobody can be told
    for number in range(DURING):
        assert await here.start(plane, "line", key=f"during/{number}"), "a start needs the database alone"
        assert await here.start(plane, "hasty", key=f"hasty/{number}"), "with less time than the bus is away"
    await asyncio.sleep(for_s)  # the outage itself
    await nats.restart()

    back_s = SystemClock().monotonic_s()
    history = await here.check(within_s=within_s)
    ends = Counter(type(one.event).__name__ for one in history.events if "execution." in type_of(one.event))
    assert ends["ExecutionCompleted"] == ends["ExecutionStarted"] == BEFORE + 2 * DURING
    assert (plane.process.exit_code, worker.exit_code) == (None, None)
    times = Counter((execution, effect) for execution, _, _, effect, *_ in here.evidence.runs())
    assert len(times) == 3 * (BEFORE + DURING) + 2 * DURING
    assert set(times.values()) == {1}, "what had ended was run again"
    return SystemClock().monotonic_s() - back_s


async def _main(for_s: float) -> None:
    with tempfile.TemporaryDirectory(prefix="agentflow-outage-") as name:
        folder = Path(name)
        async with (
            postgres_server(folder / "pg") as postgres,
            nats_server(folder / "nats") as nats,
            deployed(folder, await postgres.create_database(), nats) as here,
        ):
            drained_s = await bus_is_away(here, nats, for_s=for_s, within_s=60, **DEFAULTS)
    sys.stdout.write(
        f"The bus was away for {for_s:.0f} s. All {BEFORE + 2 * DURING} executions were completed {drained_s:.1f} s "
        "after it was back, each step was run once, and nobody was restarted.\n"
    )


if __name__ == "__main__":
    asyncio.run(_main(float(sys.argv[1])))
