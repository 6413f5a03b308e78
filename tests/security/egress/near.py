"""The machine of the egress tests: our proxy in a network namespace whose only neighbour is `far`.

`unshare --net --mount python near.py FOLDER`, then a JSON document a line: `{"open": {...}}` opens a door and answers
with its socket, `{"revoke": socket}` lets its fence fall, `{"counts": socket}` tells what it decided. Records go
to FOLDER/records.
"""

import asyncio
import contextlib
import json
import ssl
import subprocess
import sys
from pathlib import Path

import msgspec

from agentflow.contracts.tool_records import CallSite, EgressRecord
from sandbox.egress.allowance import Allowance, Credential, Limits
from sandbox.egress.door import EgressProxy
from sandbox.egress.policy import Reach, parse_grant
from sandbox.egress.terminator import Terminator
from sandbox.egress.upstream import Upstream

folder = Path(sys.argv[1])


def plug_in() -> subprocess.Popen:
    run = subprocess.check_call
    (folder / "resolv.conf").write_text("nameserver 10.53.0.53\noptions timeout:1 attempts:2\n")
    run(["mount", "--bind", str(folder / "resolv.conf"), "/etc/resolv.conf"])
    run(["ip", "link", "set", "lo", "up"])
    far = subprocess.Popen(
        ["unshare", "--net", sys.executable, str(Path(__file__).with_name("far.py")), str(folder)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    here = Path("/proc/self/ns/net").readlink()
    while Path(f"/proc/{far.pid}/ns/net").readlink() == here:
        assert far.poll() is None
    run(["ip", "link", "add", "near", "type", "veth", "peer", "name", "far", "netns", str(far.pid)])
    run(["ip", "addr", "add", "10.9.0.1/30", "dev", "near"])
    run(["ip", "addr", "add", "93.184.216.99/32", "dev", "near"])  # a public address of the worker's own machine
    run(["ip", "-6", "addr", "add", "2001:db8:9::1/64", "dev", "near", "nodad"])
    run(["ip", "link", "set", "near", "up"])
    run(["ip", "route", "add", "default", "via", "10.9.0.2"])
    run(["ip", "-6", "route", "add", "default", "via", "2001:db8:9::2"])
    far.stdin.write(b"go\n")
    far.stdin.flush()
    assert far.stdout.readline() == b"ready\n"
    return far


def record(noted: EgressRecord) -> None:
    with (folder / "records").open("ab") as file:
        file.write(msgspec.json.encode(noted) + b"\n")


def answer(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


async def main() -> None:
    terminator = Terminator()
    (folder / "authority.pem").write_text(terminator.authority_pem)
    proxy = EgressProxy(
        upstream=Upstream(
            reach=Reach(),
            own=[("ours.test", 80), ("ours.test", 443)],
            tls=ssl.create_default_context(cafile=folder / "ca.pem"),
        ),
        record=record,
        secret_of={"TOKEN": "canary-3f9a1c77d2"}.get,
        now_ms=lambda: 0,
        terminator=terminator,
    )
    loop = asyncio.get_running_loop()
    doors = {}
    async with contextlib.AsyncExitStack() as open_doors:
        answer("ready")
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            asked = json.loads(line)
            match asked:
                case {"open": wanted}:
                    allowance = Allowance(
                        CallSite("acme", "exec_1", "fetch", 2, "web.fetch"),
                        grants=tuple(parse_grant(text) for text in wanted["grants"]),
                        credentials=msgspec.convert(wanted.get("credentials", []), tuple[Credential, ...]),
                        limits=msgspec.convert(wanted.get("limits", {}), Limits),
                    )
                    door = await open_doors.enter_async_context(proxy.door(allowance))
                    doors[door.path] = door
                    answer(json.dumps({"path": door.path}))
                case {"revoke": path}:
                    doors[path].revoke("a newer attempt runs")
                    answer("{}")
                case {"counts": path}:
                    answer(json.dumps(doors[path].counts))


far = plug_in()
try:
    asyncio.run(main())
finally:
    far.kill()
