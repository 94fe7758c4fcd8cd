"""A link that takes its time: a TCP proxy of this machine that holds back every chunk, each way."""

import asyncio
import threading


class Link:
    """A proxy to a port of this machine; `port` is its own. A context manager that runs it in a thread.

    A connection takes a round trip before anything goes through, as TCP's own opening does; after that every chunk
    comes half of one later, in order, and as many are on their way as have been sent.

    Parameters
    ----------
    to
        The port that it leads to.
    round_trip
        Seconds that there and back take.
    """

    def __init__(self, to, round_trip):
        self.port, self._to, self._delay = None, to, round_trip / 2
        self._loop, self._ready, self._tasks = asyncio.new_event_loop(), threading.Event(), set()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self):
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(self, kind, error, traceback):
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self):
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._connect, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()
        server.close()
        for task in self._tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*self._tasks, return_exceptions=True))
        self._loop.close()

    async def _connect(self, near, back):
        await asyncio.sleep(2 * self._delay)
        try:
            far, there = await asyncio.open_connection("127.0.0.1", self._to)
        except OSError:  # nobody listens there
            back.close()
            return
        for task in map(self._loop.create_task, (self._carry(near, there), self._carry(far, back))):
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _carry(self, source, target):
        """What comes from one end goes to the other, this much later; so does the end of it."""
        chunks = asyncio.Queue()
        sender = self._loop.create_task(self._deliver(chunks, target))
        try:
            while chunk := await source.read(2**16):
                chunks.put_nowait((self._loop.time() + self._delay, chunk))
        except OSError:  # it has been cut off
            pass
        finally:
            chunks.put_nowait((self._loop.time() + self._delay, b""))
            await sender

    async def _deliver(self, chunks, target):
        try:
            while True:
                due, chunk = await chunks.get()
                await asyncio.sleep(due - self._loop.time())
                if not chunk:
                    break
                target.write(chunk)
                await target.drain()
        except OSError:
            pass
        finally:
            target.close()
