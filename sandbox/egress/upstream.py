"""From a granted name to a connection: looked up once, every address checked, and only a checked one connected to.

Called by `ways` after `policy.judge_name` said yes: a refused name costs no query. Nothing between the check and the
connection looks the name up again, so there is no moment in which its meaning could change.
"""

import asyncio
import contextlib
import ipaddress
import math
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from sandbox.egress.policy import IPAddress, Reach, Refused, judge_addresses
from sandbox.egress.wire import Wire

Resolve = Callable[[str], Awaitable[Sequence[str]]]

_RESOLVE_S = 5.0
_CONNECT_S = 10.0
_OWN_KNOWN_S = 30.0


async def system_resolve(host: str) -> list[str]:
    """The addresses that the machine's own resolver knows. `host` is a name: numbers never get here."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(_RESOLVE_S):
            found = await loop.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, TimeoutError, UnicodeError):
        return []
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


class Upstream:
    def __init__(
        self,
        *,
        resolve: Resolve = system_resolve,
        reach: Reach,
        own: Sequence[tuple[str, int]] = (),
        tls: ssl.SSLContext,
    ) -> None:
        """`own` are servers that no tool reaches, by name or address: looked up again and again, as names move."""
        self._resolve = resolve
        self._reach = reach
        self._own = own
        self._own_known_at_s = -math.inf
        self._tls = tls

    async def addresses(self, host: str, port: int) -> tuple[IPAddress, ...]:
        """Every address of a granted host, each checked; or `Refused`."""
        await self._know_own()
        found = judge_addresses(host, port, await self._looked_up(host), self._reach)
        for address in found:
            if _is_this_machine(address) and not any(
                address in network for network in self._reach.private if network.version == address.version
            ):
                raise Refused("address_denied", f"{host} leads to {address}, which is this machine.")
        return found

    async def _know_own(self) -> None:
        now_s = asyncio.get_running_loop().time()
        if not self._own or now_s - self._own_known_at_s < _OWN_KNOWN_S:
            return
        found = {(ipaddress.ip_address(text), port) for host, port in self._own for text in await self._looked_up(host)}
        self._reach = msgspec.structs.replace(self._reach, own=frozenset(found))
        self._own_known_at_s = now_s

    async def _looked_up(self, host: str) -> Sequence[str]:
        is_number = ":" in host or host.rpartition(".")[2].isdecimal()
        return [host] if is_number else await self._resolve(host)

    async def connect(
        self, host: str, port: int, addresses: Sequence[IPAddress], *, tls: bool
    ) -> tuple[Wire, IPAddress]:
        """A connection to the first address that answers, and which one it was."""
        reason = "no address answered"
        for address in addresses:
            try:
                async with asyncio.timeout(_CONNECT_S):
                    return await self._dial(host, port, address, tls=tls), address
            except TimeoutError:
                reason = "it did not answer in time"
            except ssl.SSLError as error:
                reason = f"TLS: {error.reason or error}"
            except OSError as error:
                reason = error.strerror or type(error).__name__
        raise Refused("unreachable", f"{host}:{port} cannot be reached: {reason}.")

    async def _dial(self, host: str, port: int, address: IPAddress, *, tls: bool) -> Wire:
        family = socket.AF_INET if address.version == 4 else socket.AF_INET6
        dialled = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            await asyncio.get_running_loop().sock_connect(dialled, (str(address), port))
            if tls:
                reader, writer = await asyncio.open_connection(sock=dialled, ssl=self._tls, server_hostname=host)
            else:
                reader, writer = await asyncio.open_connection(sock=dialled)
        except BaseException:
            dialled.close()
            raise
        return Wire(reader, writer)


def _is_this_machine(address: IPAddress) -> bool:
    """Whether a packet to `address` would leave from that same address. Asking sends nothing."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((str(address), 9))
        return str(probe.getsockname()[0]) == str(address)
    return False
