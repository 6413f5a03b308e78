"""`make soak`: live through new days for as long as you like, on all cores; or through one again, with its trace.

Every day that fails is printed with its seed at once. Ctrl-C ends it with the same summary as the end of the time does.
"""

import argparse
import os
import re
import secrets
import signal
import sys
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait

from tests.simulation.model.day import lived

DAYS_AT_ONCE = 25


def main() -> int:
    parser = argparse.ArgumentParser(prog="make soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600, help="for how long (600)")
    parser.add_argument("--days", type=int, default=0, help="how many days at most; 0 is no limit")
    parser.add_argument("--first", type=int, default=-1, help="the first seed; a random one by default")
    parser.add_argument("--seed", type=int, default=-1, help="live this one day again and print its trace")
    parser.add_argument(
        "--ways", default="", help="what breaks, by commas, such as kill,wipe_bus; everything by default"
    )
    options = parser.parse_args()
    ways = tuple(filter(None, options.ways.split(",")))
    if options.seed >= 0:
        return one_day(options.seed, ways)
    first = options.first if options.first >= 0 else 10_000 + secrets.randbelow(1_000_000_000)
    return many_days(first, ways, seconds=options.seconds, days=options.days or sys.maxsize)


def one_day(seed: int, ways: tuple[str, ...]) -> int:
    day, found = lived(seed, ways=ways, keep_trace=True)
    for line in day.lines or ():
        say(re.sub(r"exec_\w{18}", "exec_…", line))
    say(f"seed {seed}, trace {day.trace_hash}, {day.loop.time():.1f} s of its own time")
    for violation in found:
        say(f"  {violation}")
    say("nothing is wrong with it" if not found else f"{len(found)} invariants do not hold")
    return 1 if found else 0


def several(first: int, ways: tuple[str, ...]) -> list[tuple[int, list[str]]]:
    """What was wrong with each of some days in a row."""
    return [(seed, [str(one) for one in lived(seed, ways=ways)[1]]) for seed in range(first, first + DAYS_AT_ONCE)]


def many_days(first: int, ways: tuple[str, ...], *, seconds: float, days: int) -> int:
    ends_s = time.monotonic() + seconds
    lived_days, bad, began_s = 0, 0, time.monotonic()
    say(f"from seed {first}; Ctrl-C ends it")
    with ProcessPoolExecutor(initializer=signal.signal, initargs=(signal.SIGINT, signal.SIG_IGN)) as pool:
        try:
            for results in _as_they_come(pool, first, ways, days, ends_s):
                for seed, found in results:
                    lived_days += 1
                    if found:
                        bad += 1
                        only = f" WAYS={','.join(ways)}" if ways else ""
                        say(f"\nseed {seed} (make soak SEED={seed}{only})")
                        say("\n".join(f"  {violation}" for violation in found))
                spent_s = time.monotonic() - began_s
                say(f"\r{lived_days} days, {bad} bad, {lived_days / spent_s:.0f} a second ", end="")
        except KeyboardInterrupt:
            say("\nstopped; what was begun is not counted", end="")
            pool.shutdown(cancel_futures=True)
    say(f"\n{lived_days} days from seed {first}: {bad} bad")
    return 1 if bad else 0


def _as_they_come(
    pool: ProcessPoolExecutor, first: int, ways: tuple[str, ...], days: int, ends_s: float
) -> Iterator[list[tuple[int, list[str]]]]:
    begun = 0
    running: set[Future[list[tuple[int, list[str]]]]] = set()
    while True:
        while begun < days and time.monotonic() < ends_s and len(running) < 2 * (os.cpu_count() or 1):
            running.add(pool.submit(several, first + begun, ways))
            begun += DAYS_AT_ONCE
        if not running:
            return
        done, running = wait(running, return_when=FIRST_COMPLETED)
        for each in done:
            yield each.result()


def say(words: str, end: str = "\n") -> None:
    sys.stdout.write(words + end)
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
