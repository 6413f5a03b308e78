"""Reads what a NATS server sends: deliveries here, every other line by nats-py's own parser.

Given to nats-py by `nats_connection`. nats-py tries its regular expressions in turn and moves the rest of its buffer
for each message; deliveries are nearly all that reaches us, and need neither.
"""

from collections.abc import Awaitable, Callable

from nats.errors import ProtocolError
from nats.protocol.parser import Parser

# The subscription's number, subject, reply subject, payload, headers.
Deliver = Callable[[int, bytes, bytes, bytes, bytes], Awaitable[None] | None]


class DeliveryParser(Parser):
    def __init__(self, client: object, deliver: Deliver) -> None:
        self._deliver = deliver
        self._rest = b""
        super().__init__(client)

    def reset(self) -> None:
        super().reset()
        self._rest = b""

    async def parse(self, data: bytes = b"") -> None:
        data = self._rest + data
        at = 0
        while (line_end := data.find(b"\r\n", at)) >= 0:
            body = line_end + 2
            is_bare = data.startswith(b"MSG ", at)
            if not is_bare and not data.startswith(b"HMSG ", at):
                await super().parse(data[at:body])
                at = body
                continue
            fields = data[at:line_end].split(b" ")
            try:
                number, end = int(fields[2]), body + int(fields[-1])
                headers_end = body if is_bare else body + int(fields[-2])
            except (ValueError, IndexError):
                raise ProtocolError from None
            if end + 2 > len(data):
                break
            reply = fields[3] if len(fields) == (5 if is_bare else 6) else b""
            waiting = self._deliver(number, fields[1], reply, data[headers_end:end], data[body:headers_end])
            if waiting is not None:
                await waiting
            at = end + 2
        self._rest = data[at:]
