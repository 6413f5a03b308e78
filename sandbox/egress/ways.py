"""The ways in: HTTP (absolute or plain), CONNECT, SOCKS5 and bare TLS, told apart by their first byte.

Whatever way is taken, `_granted` is the one decision: the fence, then the name (`policy`), then every address
(`upstream`). A tunnel carries TLS for exactly the name it was opened for; anything else is a single HTTP request that
we write anew. Each conversation leaves one `denied` record, or an `allowed` and a `closed` one.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Protocol

import msgspec

from agentflow.contracts.tool_records import EgressVerdict
from sandbox.egress import client_hello, request_head
from sandbox.egress.allowance import Allowance, Credential
from sandbox.egress.policy import IPAddress, Refused, judge_name, parse_authority, parse_host
from sandbox.egress.request_head import Destination, RequestHead, Scheme
from sandbox.egress.terminator import Terminator
from sandbox.egress.upstream import Upstream
from sandbox.egress.wire import Wire

_TLS, _SOCKS5 = 0x16, 0x05
_LINE_BYTES_MAX = 64
_ALERT_DENIED = bytes.fromhex("15030300020231")  # fatal, access_denied
_SOCKS_DENIED = b"\x05\x02\x00\x01\x00\x00\x00\x00\x00\x00"
_SOCKS_GRANTED = b"\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00"

_Addresses = tuple[IPAddress, ...]


class Door(Protocol):
    """What a conversation asks of the door it came in by."""

    allowed: Allowance
    upstream: Upstream
    terminator: Terminator | None

    def check_fence(self) -> None:
        """Raises `Refused` once the attempt is over."""
        ...

    def note(self, verdict: EgressVerdict, way: str, host: str, port: int, **details: str | int) -> None: ...

    def secret_of(self, name: str, /) -> str | None: ...


class Conversation:
    """One connection from inside, from its first byte to its last."""

    def __init__(self, door: Door, wire: Wire) -> None:
        self._door = door
        self._wire = wire
        self._way = "http"
        self._speaks = "http"  # what the client understands now; a tunnel changes it
        self._host = ""
        self._port = 0
        self._bytes_up = 0
        self._bytes_down = 0

    async def serve(self, *, crowded: bool) -> None:
        first = await self._first()
        if not first:
            return
        try:
            if crowded:
                raise Refused("too_many", "This call has too many connections open.")  # noqa: TRY301
            self._door.check_fence()
            match first[0]:
                case 0x16:
                    await self._bare_tls()
                case 0x05:
                    await self._socks()
                case _:
                    await self._http()
        except Refused as refused:
            self._door.note("denied", self._way, self._host, self._port, reason=refused.code)
            await self._answer(refused)
        finally:
            await (
                self._wire.close()
            )  # an inner one, where we ended TLS; the outer is the door's and closes twice gladly

    async def _bare_tls(self) -> None:
        """TLS without a word before it: the name is the one in its hello, the port the one of https."""
        self._way = self._speaks = "tls"
        self._port = 443
        self._host = await self._hello()
        await self._tunnel(await self._granted())

    async def _http(self) -> None:
        head = await self._head()
        if head.method != "CONNECT":
            await self._forward(head, request_head.destination(head), None)
            return
        self._way, self._host = "connect", head.target
        self._host, self._port = parse_authority(head.target, None)
        for name in head.all("host"):
            if parse_authority(name, self._port) != (self._host, self._port):
                raise Refused("host_mismatch", f"CONNECT is for {self._host} and its Host header for another.")
        addresses = await self._granted()
        await self._wire.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await self._inside(addresses)

    async def _socks(self) -> None:
        """SOCKS5 (RFC 1928): CONNECT by name or address, no authentication; nothing else."""
        self._way = self._speaks = "socks5"
        async with asyncio.timeout(self._door.allowed.limits.head_s):
            _, methods = await self._wire.exactly(2)
            if 0 not in await self._wire.exactly(methods):
                raise Refused("request_malformed", "SOCKS5 here needs no authentication.")
            await self._wire.write(b"\x05\x00")
            version, command, _, kind = await self._wire.exactly(4)
            if version != _SOCKS5 or command != 1:
                raise Refused("request_malformed", "Only CONNECT is served over SOCKS5.")
            self._host = await self._socks_host(kind)
            self._port = int.from_bytes(await self._wire.exactly(2))
        self._host = parse_host(self._host)
        addresses = await self._granted()
        await self._wire.write(_SOCKS_GRANTED)
        await self._inside(addresses)

    async def _socks_host(self, kind: int) -> str:
        match kind:
            case 1:
                return ".".join(str(byte) for byte in await self._wire.exactly(4))
            case 3:
                (length,) = await self._wire.exactly(1)
                return (await self._wire.exactly(length)).decode("latin-1")
            case 4:
                return f"[{(await self._wire.exactly(16)).hex(':', 2)}]"
            case _:
                raise Refused("request_malformed", "SOCKS5 names its destination in an unknown way.")

    async def _inside(self, addresses: _Addresses) -> None:
        """What comes through a tunnel that was granted: TLS for that very name, or one plain request to it."""
        first = await self._first()
        if not first:
            return
        self._speaks = "tls" if first[0] == _TLS else "http"
        if first[0] != _TLS:
            head = await self._head()
            await self._forward(head, request_head.destination(head, ("http", self._host, self._port)), addresses)
            return
        named = await self._hello()
        if named != self._host:
            raise Refused("host_mismatch", f"The tunnel was opened to {self._host} and its TLS asks for {named}.")
        await self._tunnel(addresses)

    async def _granted(self) -> _Addresses:
        """The one decision. A name that is not granted is never looked up."""
        judge_name(self._host, self._port, self._door.allowed.grants, tool=self._door.allowed.site.tool)
        addresses = await self._door.upstream.addresses(self._host, self._port)
        self._door.check_fence()  # it may have fallen while the name was looked up
        return addresses

    async def _tunnel(self, addresses: _Addresses) -> None:
        """TLS end to end, unseen; or, where we have a credential to put in, ended here and begun anew."""
        if self._door.terminator is not None and self._credential() is not None:
            self._wire = await self._door.terminator.opened(self._wire, self._host)
            self._speaks = "http"
            head = await self._head()
            claimed: tuple[Scheme, str, int] = ("https", self._host, self._port)
            await self._forward(head, request_head.destination(head, claimed), addresses)
            return
        there, address = await self._door.upstream.connect(self._host, self._port, addresses, tls=False)
        self._door.note("allowed", self._way, self._host, self._port, address=str(address))
        reason = ""
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._copy(self._wire, there, self._up))
                both.create_task(self._copy(there, self._wire, self._down))
        except* Refused as cut:
            reason = str(getattr(cut.exceptions[0], "code", ""))
            self._wire.abort()
        except* OSError:
            self._wire.abort()
        finally:
            self._closed(address, reason)
            await there.close()

    async def _forward(self, head: RequestHead, to: Destination, addresses: _Addresses | None) -> None:
        """One request, written anew, and its answer; then the connection ends, so nothing can hide behind it."""
        self._host, self._port = to.host, to.port
        length = request_head.body_length(head)
        if addresses is None:
            addresses = await self._granted()
        replaced, secret = self._put_in(to)
        there, address = await self._door.upstream.connect(to.host, to.port, addresses, tls=to.scheme == "https")
        self._door.note("allowed", self._way, to.host, to.port, address=str(address), secret=secret)
        reason = ""
        try:
            await self._up(there, request_head.written(head, to, replaced))
            sending = asyncio.create_task(self._send_body(there, length))
            try:
                await self._copy(there, self._wire, self._down)
            finally:
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)
        except Refused as refused:
            reason = refused.code
            self._wire.abort()
        finally:
            self._closed(address, reason)
            await there.close()

    def _credential(self) -> Credential | None:
        return next((item for item in self._door.allowed.credentials if item.host == self._host), None)

    def _put_in(self, to: Destination) -> tuple[dict[str, str], str]:
        """The header we set for this host, and the name of its secret: over TLS only, and for this host only."""
        credential = self._credential()
        if credential is None:
            return {}, ""
        if to.scheme != "https":
            raise Refused(
                "credential_needs_tls", f"Requests to {to.host} carry a credential: use https.", "Write https://."
            )
        value = self._door.secret_of(credential.secret)
        if value is None or not value.isprintable() or not value.isascii():
            raise Refused(
                "secret_missing",
                f"The secret {credential.secret!r} is not there, or is not one line of text.",
                f"Put it into a file named {credential.secret} in the folder that AF_SECRETS_DIR names.",
            )
        return {credential.header: credential.format.replace("{}", value)}, credential.secret

    async def _send_body(self, there: Wire, length: int | None) -> None:
        if length is None:
            while chunk := await self._chunk():
                await self._up(there, b"%x\r\n%b\r\n" % (len(chunk), chunk))
            await self._up(there, b"0\r\n\r\n")
            return
        while length:
            data = await self._wire.exactly(min(length, 64 * 1024))
            length -= len(data)
            await self._up(there, data)

    async def _chunk(self) -> bytes:
        line = (await self._wire.until(b"\r\n", _LINE_BYTES_MAX))[:-2]
        if not re.fullmatch(rb"[0-9a-fA-F]{1,7}", line):
            raise Refused("request_malformed", "A chunk's length is not understood.")
        data = await self._wire.exactly(int(line, 16))
        if await self._wire.exactly(2) != b"\r\n":
            raise Refused("request_malformed", "A chunk does not end where it says.")
        return data

    async def _copy(self, source: Wire, target: Wire, through: Callable[[Wire, bytes], Awaitable[None]]) -> None:
        while data := await source.read():
            await through(target, data)
        target.end()

    async def _up(self, there: Wire, data: bytes) -> None:
        self._bytes_up += len(data)
        if self._bytes_up > self._door.allowed.limits.bytes_up_max:
            raise Refused("request_too_large", "This call has sent more than it may.")
        await there.write(data)

    async def _down(self, here: Wire, data: bytes) -> None:
        self._bytes_down += len(data)
        if self._bytes_down > self._door.allowed.limits.bytes_down_max:
            raise Refused("response_too_large", "This call has received more than it may.")
        await here.write(data)

    def _closed(self, address: IPAddress, reason: str) -> None:
        self._door.note(
            "closed", self._way, self._host, self._port,
            address=str(address), reason=reason, bytes_up=self._bytes_up, bytes_down=self._bytes_down,
        )  # fmt: skip

    async def _first(self) -> bytes:
        async with asyncio.timeout(self._door.allowed.limits.head_s):
            return (await self._wire.peek(1))[:1]

    async def _head(self) -> RequestHead:
        async with asyncio.timeout(self._door.allowed.limits.head_s):
            raw = await self._wire.until(b"\r\n\r\n", request_head.HEAD_BYTES_MAX)
        head = request_head.parse_head(raw)
        if not self._host:  # for the record, should the destination not be understood
            self._host = head.target if head.method == "CONNECT" else ", ".join(head.all("host")) or head.target
        return head

    async def _hello(self) -> str:
        async with asyncio.timeout(self._door.allowed.limits.head_s):
            seen = await self._wire.peek(1)
            while (name := client_hello.server_name(seen)) is None:
                longer = await self._wire.peek_more()
                if len(longer) == len(seen):
                    raise EOFError
                seen = longer
        return name

    async def _answer(self, refused: Refused) -> None:
        match self._speaks:
            case "tls":
                await self._wire.write(_ALERT_DENIED)
            case "socks5":
                await self._wire.write(_SOCKS_DENIED)
            case _:
                body = msgspec.json.encode(
                    {"code": refused.code, "message": refused.message, "hint": refused.hint, "from": "egress"}
                )
                status = "502 Bad Gateway" if refused.code in ("unreachable", "unresolved") else "403 Forbidden"
                await self._wire.write(
                    f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
                    f"X-AgentFlow-Egress: {refused.code}\r\nConnection: close\r\n\r\n".encode()
                    + body
                )
