"""A TCP proxy that cuts, stalls and delays, to see what a client does about it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Coroutine
from typing import Any

from tests.testbed.ports import LOOPBACK, Address, free_port

CHUNK = 65536
# Pieces under way in one direction of a connection: beyond it the sender is held back, as TCP would.
UNDER_WAY = 16
RESET_ON_CLOSE = struct.pack("ii", 1, 0)

# When a piece is to be forwarded (the loop's time in s), and the piece; None ends the direction.
_Pieces = asyncio.Queue["tuple[float, bytes] | None"]


class Proxy:
    """Listens on ``address`` and leads every connection to ``target``; it runs from the start.

    cut(), stall() and delay() hold until resume(). Each returns when it is in force. close() ends it.
    """

    def __init__(self, target: Address, address: Address | None = None) -> None:
        self.target = target
        self.address = address or Address(LOOPBACK, free_port())
        self._seconds = 0.0
        self._flowing = asyncio.Event()
        self._links: dict[asyncio.Task[None], list[asyncio.StreamWriter]] = {}
        self._server: asyncio.Server | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=f"proxy {self.address}", daemon=True)
        self._thread.start()
        self.resume()

    def cut(self) -> None:
        """Reset all connections and refuse new ones."""
        self._do(self._cut())

    def stall(self) -> None:
        """Keep connections and accept new ones, but forward nothing, as a dead router would."""
        self._do(self._stall())

    def delay(self, seconds: float) -> None:
        """From now on forward each piece of data ``seconds`` after it came, in each direction."""
        self._seconds = seconds

    def resume(self) -> None:
        """Undo cut(), stall() and delay()."""
        self._do(self._resume())

    @property
    def connections(self) -> int:
        """How many connections are open through it."""
        return len(self._links)

    def close(self) -> None:
        """Reset all connections and end."""
        if not self._loop.is_closed():
            self.cut()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- in the loop's thread -----------------------------------------------------------------------

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    async def _cut(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        links = dict(self._links)
        for task, writers in links.items():
            _reset(writers)
            task.cancel()
        await asyncio.gather(*links, return_exceptions=True)

    async def _stall(self) -> None:
        self._flowing.clear()

    async def _resume(self) -> None:
        self._seconds = 0.0
        self._flowing.set()
        if self._server is None:
            self._server = await asyncio.start_server(self._link, *self.address)

    async def _link(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection to its end."""
        task = asyncio.current_task()
        assert task is not None
        writers = self._links[task] = [writer]
        try:
            target_reader, target_writer = await asyncio.open_connection(*self.target)
            writers.append(target_writer)
            await _together(self._forward(reader, target_writer), self._forward(target_reader, writer))
        except (OSError, asyncio.CancelledError):
            # One side reset the connection, or is not there, or cut() came: so it is for the other side.
            _reset(writers)
        finally:
            for each in writers:
                each.close()
            for each in writers:
                with contextlib.suppress(OSError):
                    await each.wait_closed()
            del self._links[task]

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        pieces: _Pieces = asyncio.Queue(UNDER_WAY)
        await _together(self._take(reader, pieces), self._give(pieces, writer))

    async def _take(self, reader: asyncio.StreamReader, pieces: _Pieces) -> None:
        while data := await reader.read(CHUNK):
            await pieces.put((self._loop.time() + self._seconds, data))
        await pieces.put(None)

    async def _give(self, pieces: _Pieces, writer: asyncio.StreamWriter) -> None:
        while piece := await pieces.get():
            due, data = piece
            if (early := due - self._loop.time()) > 0:
                await asyncio.sleep(early)
            await self._flowing.wait()
            writer.write(data)
            await writer.drain()
        writer.write_eof()


async def _together(*ways: Coroutine[Any, Any, None]) -> None:
    """Run them to their end. When one fails or this is cancelled, the others are ended too, which gather() does not."""
    tasks = [asyncio.ensure_future(way) for way in ways]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _reset(writers: list[asyncio.StreamWriter]) -> None:
    """Close by a TCP RST, dropping what is not sent yet."""
    for writer in writers:
        connection: socket.socket | None = writer.get_extra_info("socket")
        if connection is not None and connection.fileno() >= 0:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
        writer.transport.abort()
