"""`make bench`: measure what is named (or everything), print tables, save bench/results/latest.json.

Where the platform and the peers are measured in the same run, the ratio to each is printed as well.
"""

import argparse
import pkgutil
import sys
from importlib import import_module
from pathlib import Path

from rich.console import Console

from bench import comparison, report, subjects
from bench.peers.run import PEERS

SUBJECTS = sorted(module.name for module in pkgutil.iter_modules(subjects.__path__))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__, epilog=_listed())
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("subjects", nargs="*", choices=[*SUBJECTS, []], metavar="SUBJECT")
    parser.add_argument(
        "--peer", action="append", default=[], choices=[peer.name for peer in PEERS], help="only this one; repeatable"
    )
    asked = parser.parse_args()
    chosen = asked.subjects or SUBJECTS
    console = Console()
    measured: dict[str, report.Results] = {}
    for name in chosen:
        options = {"only": asked.peer} if name == "peers" else {}
        measured[name] = import_module(f"bench.subjects.{name}").run(console, **options)
        console.print(report.table(name, measured[name]))
    if {"platform", "peers"} <= measured.keys():
        for place in ("postgresql", "sqlite"):
            console.print(comparison.ratios(place, measured["platform"][place], measured["peers"]))
        console.print(comparison.promises(measured["platform"]["postgresql"], measured["peers"]))
    saved = report.save(measured)
    console.print(f"saved {saved.relative_to(Path.cwd()) if saved.is_relative_to(Path.cwd()) else saved}")
    return 0


def _listed() -> str:
    """What can be measured, in the words of the files themselves."""
    docs = {name: import_module(f"bench.subjects.{name}").__doc__ or "" for name in SUBJECTS}
    return "\n".join(["subjects:", *(f"  {name:<12} {doc.splitlines()[0]}" for name, doc in docs.items())])


if __name__ == "__main__":
    sys.exit(main())
