"""A wire between two real processes that a test can listen to, hold, cut one way or both, and reset.

It sees bytes and knows no protocol: what a test waits for is a piece of a message, such as the name of an event.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit

_CHUNK = 65_536


class Proxy:
    """`up` is from whoever connected to the server, `down` the way back."""

    def __init__(self, host: str, port: int) -> None:
        self.target = (host, port)
        self.port = 0
        self.cut_up = False
        self.cut_down = False
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._garbled: tuple[bytes, bytes] | None = None
        self._up_waits: list[tuple[bytes, Callable[[], bool]]] = []
        self._after_up: Callable[[], bool] | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None

    def on_request(self, words: bytes, do: Callable[[], bool]) -> None:
        """When these bytes are on their way up for the next time. What `do` says decides whether they may pass."""
        self._up_waits.append((words, do))

    def on_answer_to(self, words: bytes, do: Callable[[], bool]) -> None:
        """When the server has answered the request with these bytes: it has done what was asked, and nobody knows."""

        def sent() -> bool:
            self._after_up = do
            return True

        self.on_request(words, sent)

    def garble(self, words: bytes, into: bytes) -> None:
        """From now on these bytes arrive as others, as many: a message is lost, and its line goes on."""
        assert len(words) == len(into)
        self._garbled = (words, into)

    def cut(self) -> None:
        """Nothing passes any more, and nobody is told."""
        self.cut_up = self.cut_down = True

    def mend(self) -> None:
        self.cut_up = self.cut_down = False
        self._garbled = None
        self.reset()  # what was lost on the way leaves both sides at odds: they must begin anew

    def reset(self) -> None:
        for writer in list(self._writers):
            writer.transport.abort()

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        self.reset()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            upstream, upwriter = await asyncio.open_connection(*self.target)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, upwriter}
        try:
            await asyncio.gather(self._pass_up(reader, upwriter), self._pass_down(upstream, writer))
        finally:
            self._writers -= {writer, upwriter}
            for each in (writer, upwriter):
                each.transport.abort()

    async def _pass_up(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while chunk := await reader.read(_CHUNK):
                if not self.cut_up and self._may_pass(chunk):
                    writer.write(chunk if self._garbled is None else chunk.replace(*self._garbled))
                    await writer.drain()
        writer.transport.abort()

    def _may_pass(self, chunk: bytes) -> bool:
        for wait in self._up_waits:
            if wait[0] in chunk:
                self._up_waits.remove(wait)
                return wait[1]()
        return True

    async def _pass_down(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while chunk := await reader.read(_CHUNK):
                do, self._after_up = self._after_up, None
                if not self.cut_down and (do is None or do()):
                    writer.write(chunk)
                    await writer.drain()
        writer.transport.abort()


@asynccontextmanager
async def proxied(url: str) -> AsyncIterator[tuple[Proxy, str]]:
    """A proxy before what a URL names, and the same URL through it."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    proxy = Proxy(parts.hostname, parts.port)
    await proxy.open()
    try:
        yield proxy, url.replace(f":{parts.port}", f":{proxy.port}")
    finally:
        await proxy.close()
