"""The way out of a sandbox: a unix socket in a folder that is shown inside, passed on to the egress proxy's own.

A relay and not the proxy's socket itself, because a sandbox may be prepared before anybody knows its call, because
whoever runs inside is another user, and because the relay ends with the call whatever the proxy does.
"""

import asyncio
import contextlib
import ssl
from functools import cache
from pathlib import Path

from sandbox.backends.layout import CERTIFICATES, EGRESS, RESOLVER
from sandbox.backends.scratch import Scratch

_CHUNK_BYTES = 64 * 1024


class Door:
    """Closed until `open_to`; `close` ends every conversation through it and removes the folder."""

    def __init__(self, trusted: str | None = None) -> None:
        """`trusted` is a certificate that programs inside must believe, beside those of the world."""
        self._scratch = Scratch()
        self.folder = str(self._scratch.path)
        self._scratch.path.chmod(0o711)  # the socket can be reached by its name, and nothing can be listed
        resolver = self._scratch.path / RESOLVER
        resolver.write_text("nameserver 127.0.0.1\noptions timeout:1 attempts:1\n")
        resolver.chmod(0o644)
        if trusted is not None:
            certificates = self._scratch.path / Path(CERTIFICATES).name
            certificates.write_text(f"{_of_the_world()}\n{trusted}")
            certificates.chmod(0o644)
        self._server: asyncio.Server | None = None
        self._passing: set[asyncio.Task[None]] = set()

    async def open_to(self, proxy: str) -> None:
        path = Path(self.folder) / Path(EGRESS).name

        async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._passing.add(task)
            try:
                await _relay(proxy, reader, writer)
            finally:
                self._passing.discard(task)

        self._server = await asyncio.start_unix_server(pass_on, path)
        path.chmod(0o666)  # to write is to connect, and inside is another user

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in list(self._passing):
            task.cancel()
        await asyncio.gather(*self._passing, return_exceptions=True)
        self._scratch.remove()


@cache
def _of_the_world() -> str:
    """The authorities that this machine believes: hosts without a credential keep their own certificates."""
    pems = [ssl.DER_cert_to_PEM_cert(known) for known in ssl.create_default_context().get_ca_certs(binary_form=True)]
    return "\n".join(pems)


async def _relay(proxy: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        theirs, to_them = await asyncio.open_unix_connection(proxy)
    except OSError:
        writer.close()
        return
    try:
        async with asyncio.TaskGroup() as both_ways:
            both_ways.create_task(_pump(reader, to_them))
            both_ways.create_task(_pump(theirs, writer))
    except* OSError:
        pass  # one side hung up: the other one learns it when we close
    finally:
        writer.close()
        to_them.close()


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    while data := await source.read(_CHUNK_BYTES):
        sink.write(data)
        await sink.drain()
    with contextlib.suppress(OSError):
        sink.write_eof()
