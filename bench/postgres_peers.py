"""pgqueuer and Procrastinate beside us, where they are installed: peers/README.md says how, and with which settings.

Each has a database of its own on the server. What they enqueue is as durable as with us; their workers do not wait for the disk,
as ours does not for jobs without a lane. Both are asynchronous: each has a loop of its own, which lives as long as it.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.metadata
import importlib.util
import json
import logging
import os
from abc import abstractmethod
from collections.abc import Callable, Coroutine
from typing import Any

import psycopg

from harness import rate
from raw_postgres import Server

__all__ = ["PgQueuer", "Procrastinate", "peers_missing"]

#: How many jobs they enqueue at once.
BULK = 1_000
#: How many jobs pgqueuer claims, and settles, at once.
BATCH = 1_000


def peers_missing() -> str:
    """Say what the peers lack here; empty: nothing."""
    lacking = [name for name in ("pgqueuer", "asyncpg", "procrastinate", "uvloop") if importlib.util.find_spec(name) is None]
    return f"no {', '.join(lacking)} here, the rows of peers are left out: see bench/peers/README.md" if lacking else ""


class _Peer:
    """A database, and an event loop of the fastest kind."""

    package = ""
    untidy = b""  #: empties the table that grows with each job
    left = b""  #: counts those that were not run

    def __init__(self, server: Server) -> None:
        self.name = f"{self.package} {importlib.metadata.version(self.package)}"
        server.ask(f"create database {self.package}")
        self.url = server.url.removesuffix("postgres") + self.package
        self._own = psycopg.connect(self.url, autocommit=True)
        self._runner = asyncio.Runner(loop_factory=importlib.import_module("uvloop").new_event_loop)
        logging.getLogger(self.package).setLevel(logging.ERROR)
        self._runner.run(self.open())

    def timed(self, number: int, work: Callable[[int], Coroutine[Any, Any, None]]) -> float:
        """Return how many per second."""
        return rate(number, lambda: self._runner.run(work(number)))

    def work(self, number: int) -> float:
        """Run so many jobs; return how many per second."""
        self._runner.run(self.bulk(number))
        self.tidy()
        figure = self.timed(number, self.drain)
        assert self._own.execute(self.left).fetchone() == (0,)
        return figure

    def close(self) -> None:
        """Disconnect."""
        self._runner.run(self.leave())
        self._runner.close()
        self._own.close()

    def tidy(self) -> None:
        """Forget what is finished."""
        self._own.execute(self.untidy)
        self._own.execute("vacuum analyze")

    @abstractmethod
    async def open(self) -> None:
        """Connect, and make tables."""

    @abstractmethod
    async def leave(self) -> None:
        """Disconnect."""

    @abstractmethod
    async def one_by_one(self, number: int) -> None:
        """Enqueue so many."""

    @abstractmethod
    async def bulk(self, number: int) -> None:
        """Enqueue so many, a thousand at a time."""

    @abstractmethod
    async def drain(self, number: int, /) -> None:
        """Run all that waits."""


class PgQueuer(_Peer):
    """One process, asyncpg; as many runs at once as it likes."""

    package = "pgqueuer"
    untidy = b"truncate pgqueuer_log"
    left = b"select count(*) from pgqueuer"

    async def open(self) -> None:
        """Connect, and make tables: only those are logged that must survive a crash."""
        os.environ["PGQUEUER_DURABILITY"] = "balanced"
        queries: Any = importlib.import_module("pgqueuer.queries").Queries
        driver: Any = importlib.import_module("pgqueuer.db").AsyncpgDriver
        connect: Any = importlib.import_module("asyncpg").connect
        self._manager: Any = importlib.import_module("pgqueuer.qm").QueueManager

        self._lines = [await connect(self.url), await connect(self.url, server_settings={"synchronous_commit": "off"})]
        self._queue, self._working = [queries(driver(line)) for line in self._lines]
        await self._queue.install()

    async def leave(self) -> None:
        """Disconnect."""
        for line in self._lines:
            await line.close()

    async def one_by_one(self, number: int) -> None:
        """Enqueue so many."""
        for n in range(number):
            await self._queue.enqueue("plain", json.dumps([n, "welcome"]).encode())

    async def bulk(self, number: int) -> None:
        """Enqueue so many, a thousand at a time."""
        for first in range(0, number, BULK):
            bodies = [json.dumps([n, "welcome"]).encode() for n in range(first, first + BULK)]
            await self._queue.enqueue(["plain"] * BULK, bodies, [0] * BULK)

    async def drain(self, number: int) -> None:
        """Run all that waits."""
        worker, left = self._manager(self._working), number

        async def plain(job: Any) -> None:
            nonlocal left
            json.loads(job.payload)
            left -= 1
            if not left:
                worker.shutdown.set()

        worker.entrypoint("plain")(plain)
        await worker.run(batch_size=BATCH)


class Procrastinate(_Peer):
    """One process, psycopg; ten runs at once. Finished jobs are deleted. It need not listen: all jobs are there."""

    package = "procrastinate"
    untidy = b"truncate procrastinate_events"
    left = b"select count(*) from procrastinate_jobs"

    async def open(self) -> None:
        """Connect, and make tables."""
        library: Any = importlib.import_module("procrastinate")

        async def made(size: int, **options: str) -> Any:
            app = library.App(connector=library.PsycopgConnector(conninfo=self.url, min_size=size, max_size=size, kwargs=options))

            @app.task(name="plain")  # type: ignore[untyped-decorator]
            async def plain(number: int, text: str) -> None: ...

            await app.open_async()
            return app

        self._app, self._working = await made(1), await made(12, options="-c synchronous_commit=off")
        await self._app.schema_manager.apply_schema_async()
        self._plain = self._app.tasks["plain"]

    async def leave(self) -> None:
        """Disconnect."""
        for app in (self._app, self._working):
            await app.close_async()

    async def one_by_one(self, number: int) -> None:
        """Enqueue so many."""
        for n in range(number):
            await self._plain.defer_async(number=n, text="welcome")

    async def bulk(self, number: int) -> None:
        """Enqueue so many, a thousand at a time."""
        for first in range(0, number, BULK):
            await self._plain.batch_defer_async(*({"number": n, "text": "welcome"} for n in range(first, first + BULK)))

    async def drain(self, _: int) -> None:
        """Run all that waits."""
        await self._working.run_worker_async(
            concurrency=10, wait=False, listen_notify=False, delete_jobs="always", install_signal_handlers=False
        )
