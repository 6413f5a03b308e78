"""One direction-less byte stream with a look ahead: what was peeked at is still there for whoever reads next."""

import asyncio
import contextlib

from sandbox.egress.policy import Refused

_CHUNK = 64 * 1024


class Wire:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._ahead = bytearray()

    async def peek(self, count: int) -> bytes:
        """At least `count` bytes without taking them, or fewer at the end of the stream."""
        while len(self._ahead) < count:
            more = await self._reader.read(_CHUNK)
            if not more:
                break
            self._ahead += more
        return bytes(self._ahead)

    async def peek_more(self) -> bytes:
        """What is there, with at least one more byte than before, unless the stream has ended."""
        return await self.peek(len(self._ahead) + 1)

    async def read(self) -> bytes:
        """What is there; empty at the end."""
        if self._ahead:
            data = bytes(self._ahead)
            self._ahead.clear()
            return data
        return await self._reader.read(_CHUNK)

    async def exactly(self, count: int) -> bytes:
        await self.peek(count)
        if len(self._ahead) < count:
            raise EOFError
        data = bytes(self._ahead[:count])
        del self._ahead[:count]
        return data

    async def until(self, mark: bytes, most: int) -> bytes:
        """Everything up to and with `mark`, at most `most` bytes."""
        searched = 0
        while (at := self._ahead.find(mark, searched)) < 0:
            searched = max(0, len(self._ahead) - len(mark) + 1)
            before = len(self._ahead)
            if before > most:
                raise Refused("request_malformed", f"A line or head is longer than {most} bytes.")
            await self.peek_more()
            if len(self._ahead) == before:
                raise EOFError
        return await self.exactly(at + len(mark))

    async def write(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    def end(self) -> None:
        """No more from our side."""
        with contextlib.suppress(OSError, RuntimeError):
            if self._writer.can_write_eof():
                self._writer.write_eof()

    async def close(self) -> None:
        self._writer.close()
        with contextlib.suppress(OSError, asyncio.CancelledError):
            await self._writer.wait_closed()

    def abort(self) -> None:
        """At once, without a goodbye."""
        self._writer.transport.abort()
