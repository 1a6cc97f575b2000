"""A program that stresses the PostgreSQL store at random. Run by test_postgres_stress.py; `postgres_evidence` judges its notes.

It starts workers and producers, kills workers and recovers them, ends sessions of the server, and compares counts with rows all
the time. At the end everything is worked off: the store is empty.

Arguments: the store's URL, a folder for the evidence, how many seconds, a seed, how many workers, how many producers.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import psycopg

from laneway.core.job import Job
from laneway.errors import StoreError
from laneway.store.inspection import Filter
from laneway.store.postgres import PostgresInspect
from postgres_stress import BODY, QUEUES, Evidence, Producer, Worker, now, open_store

#: How long it may take until everything is worked off, seconds without any progress.
PATIENCE = 10.0


class Director:
    """Starts workers and producers, harms them, and looks at what is in the store."""

    def __init__(self, url: str, folder: Path, seconds: float, seed: int) -> None:
        self._url = url
        self._folder = folder
        self._until = time.time() + seconds
        self._seed = seed
        self._chance = random.Random(seed)  # noqa: S311
        self._store = open_store(url)
        self._inspect = PostgresInspect(self._store)
        self._notes = Evidence(folder / "director")
        self._workers: dict[int, str] = {}
        self._dead: set[str] = set()
        self._producers: list[int] = []
        self._server = psycopg.connect(url, autocommit=True)

    def direct(self, workers: int, producers: int) -> None:
        """Do it all."""
        deadlocks = self._deadlocks()
        for queue in dict.fromkeys(QUEUES):  # a new queue's row is locked by the transaction that makes it
            self._store.push([Job(f"first-{queue}", "t", queue, BODY, "first")])
        for _ in range(workers):
            self._hire()
        self._producers = [
            fork(Producer(self._url, self._folder, f"p{number}", self._chance.random(), self._until).produce)
            for number in range(producers)
        ]
        while self._producers:
            time.sleep(self._chance.random() * 0.3)
            self._harm()
            self._look()
            for pid in self._producers:
                ended, code = os.waitpid(pid, os.WNOHANG)
                assert code == 0, "a producer failed"
                self._producers = [other for other in self._producers if other != ended]
        self._drain()
        (self._folder / "stop").touch()
        for pid in self._workers:
            assert os.waitpid(pid, 0)[1] == 0, "a worker failed"
        self._look()
        self._notes.note("deadlocks", self._deadlocks(slowly=True) - deadlocks)

    def _hire(self) -> None:
        name = f"w{self._seed}-{self._chance.randrange(10**9)}"
        self._workers[fork(Worker(self._url, self._folder, name, self._chance.random()).work)] = name

    def _harm(self) -> None:
        kind = self._chance.random()
        if kind < 0.5:
            for pid in self._chance.sample(sorted(self._workers), self._chance.choice((1, 1, 2))):
                name = self._workers.pop(pid)
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                self._notes.note("killed", name, now())
                self._dead.add(name)
                self._persist(lambda name=name: self._store.recover(name, "killed"))  # type: ignore[misc]
                self._hire()
            self._recover()
        elif kind < 0.8:
            who = "select pid from pg_stat_activity where application_name = 'laneway' and datname = current_database()"
            ended = self._server.execute(
                f"select count(pg_terminate_backend(pid)) from ({who} order by random() limit 1) a".encode()  # noqa: S608
            ).fetchall()
            self._notes.note("terminated", *ended[0])

    def _recover(self) -> None:
        """Recover workers that hold claims; again if somebody had locked one."""
        held = self._server.execute("select distinct worker from laneway.job where state = 4").fetchall()
        for name in self._dead.intersection(name for (name,) in held):
            self._persist(lambda name=name: self._store.recover(name, "killed"))  # type: ignore[misc]

    def _look(self) -> None:
        """Compare, at one moment, counts with rows; and no lane has two holders."""
        with contextlib.suppress(StoreError), self._store.reading() as reading:
            counts = reading.call("counts", reading.now)
            counted = {(queue, state): number for queue, *numbers in counts for state, number in enumerate(numbers)}
            state = "case when state in (0, 2) and due <= $1 then 1 else state end"
            rows = reading.line.ask(f"select queue, {state}, count(*) from laneway.job group by 1, 2", (reading.now,))  # noqa: S608
            there = {(queue, state): number for queue, state, number in rows}
            both = [(key, counted.get(key, 0), there.get(key, 0)) for key in {*counted, *there}]
            wrong = [found for found in both if found[1] != found[2]]
            twice = reading.line.ask("select queue, lane from laneway.job where holds = 1 group by 1, 2 having count(*) > 1")
            self._notes.note("looked", wrong, [list(row) for row in twice])

    def _drain(self) -> None:
        """Let everything be worked off."""
        (self._folder / "drain").touch()
        least, deadline = 1 << 62, 0.0
        while left := int(self._server.execute("select count(*) from laneway.job").fetchall()[0][0]):
            if left < least:
                least, deadline = left, time.monotonic() + PATIENCE
            if time.monotonic() > deadline:
                break
            self._recover()
            self._persist(lambda: self._inspect.act_all("retry", Filter(state="dead")))
            time.sleep(0.02)
        rows = self._server.execute(
            "select id, queue, lane, state, holds, worker, due - laneway.now_us() from laneway.job "
            "order by queue, lane, place limit 20"
        ).fetchall()
        orphans = self._server.execute("select count(*) from laneway.payload").fetchall()[0][0]
        self._notes.note("left", left, [list(map(str, row)) for row in rows], orphans)

    def _persist(self, verb: Callable[[], object]) -> None:
        while True:
            with contextlib.suppress(StoreError):
                verb()
                return

    def _deadlocks(self, *, slowly: bool = False) -> int:
        if slowly:
            time.sleep(1.2)  # a session tells its figures once a second
        rows = self._server.execute("select deadlocks from pg_stat_database where datname = current_database()").fetchall()
        return int(rows[0][0])


def fork(work: Callable[[], None]) -> int:
    """Start a process; a store opens connections of its own there."""
    pid = os.fork()
    if pid:
        return pid
    try:
        work()
    except BaseException:  # noqa: BLE001 - the director sees the exit code
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    os._exit(0)


if __name__ == "__main__":
    _, to, notes, for_seconds, chance, number_of_workers, number_of_producers = sys.argv
    Director(to, Path(notes), float(for_seconds), int(chance)).direct(int(number_of_workers), int(number_of_producers))
