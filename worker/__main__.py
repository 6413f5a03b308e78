"""`python -m worker`: configured by AF_* alone; the first SIGTERM or SIGINT lets steps finish, the second does not."""

import asyncio
import signal
import sys
from collections.abc import Callable

from agentflow.garbage import collect_seldom
from agentflow.process_exit import ExitCode, report
from agentflow.settings import Settings, load_settings
from agentflow.telemetry.logs import configure_logs
from worker.runtime import StopRequests
from worker.wiring import worker

try:
    import uvloop
except ImportError:  # not built for this platform: the standard loop does the same, slower
    new_event_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
else:
    new_event_loop = uvloop.new_event_loop


async def serve(settings: Settings) -> None:
    stop = StopRequests()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.ask)
    async with worker(settings) as runtime:
        await runtime.serve(stop)


def main() -> int:
    debug = False
    try:
        settings = load_settings()
        debug = settings.log_level == "debug"
        configure_logs(settings.log_level, settings.log_format)
        collect_seldom()
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(serve(settings))
    except Exception as error:  # noqa: BLE001 - the last place that can turn it into a sentence
        return report(error, debug=debug)
    return ExitCode.OK


if __name__ == "__main__":
    sys.exit(main())
