"""Workers that are killed and frozen while they write orders, each of which must be written once."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import postgresbench
import redisbench
from laneway import App
from laneway.errors import StoreBusy
from laneway.testing import wait_until
from laneway.transactions.receipts import TABLE

__all__ = ["Orders"]

#: A busy machine may take long to start a program.
DEADLINE = 120.0
PROGRAM = str(Path(__file__).with_name("once_program.py"))


class Orders:
    """A new store, the user's database, and the orders that are to be written there."""

    def __init__(self, store: str, kind: str, driver: str, how: str, folder: Path) -> None:
        self.server = postgresbench.server() if kind == "postgres" else None
        self.address = str(folder / "shop.db") if self.server is None else self.server.url
        self.how, self.driver, self.log = how, driver, folder / "log"
        if store == "sqlite":
            self.url = f"sqlite:///{self.address if how == 'finish' else folder / 'store.db'}"
        else:
            self.url = redisbench.emptied().url if store == "redis" else postgresbench.emptied().url
        for name in ("orders", "laneway_receipt"):
            self.ask(f"drop table if exists {name}")
        for statement in ("create table orders (id int)", *TABLE):
            self.ask(statement)
        self.app = App(f"{self.url}?timeout=1" if store == "sqlite" else self.url)
        self.number = 0

    def ask(self, sql: str) -> list[Any]:
        if self.server is not None:
            return self.server.ask(sql)
        connection = sqlite3.connect(self.address, isolation_level=None, timeout=30)
        try:
            return connection.execute(sql).fetchall()
        finally:
            connection.close()

    def enqueue(self, number: int) -> None:
        """Enqueue jobs that write orders."""
        self.app.enqueue_many(self.app.using().bind("charge", n) for n in range(self.number, self.number + number))
        self.number += number

    def start(self, ends: str) -> subprocess.Popen[str]:
        command = [sys.executable, PROGRAM, self.url, self.address, self.driver, self.how, str(self.log), ends]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def run(self, ends: str = "never") -> None:
        """Run a worker until it has done all, or is killed."""
        process = self.start(ends)
        _, said = process.communicate(timeout=DEADLINE)
        assert process.returncode == (0 if ends == "never" else -9), said

    def recover(self) -> None:
        """Do what a fleet does that finds the workers dead."""
        for worker in self.app.inspect.workers():
            self.app.store.recover(worker.id, "killed by signal 9")

    def kill(self, points: Sequence[str]) -> None:
        """Kill workers, one after the other, each at a point."""
        for point in points:
            self.run(f"kill {point}")
            wait_until(self._is_recovered, DEADLINE)

    def _is_recovered(self) -> bool:
        self.recover()  # a server may still hold what the killed one had begun
        return self.app.inspect.counts()["running"] == 0

    def freeze(self, points: Sequence[str]) -> None:
        """Freeze workers, one after the other; each is declared dead, another goes on, and it wakes up."""
        for point in points:
            self.enqueue(1)
            frozen = self.start(f"freeze {point}")
            wait_until(partial(self._has_reached, f"{point} {self.number - 1}"), DEADLINE)
            holds_file = self.server is None and self.how == "finish" and point == "write"
            if holds_file:
                assert not self._stop(frozen)
            else:
                wait_until(partial(self._stop, frozen), DEADLINE)
                self.run()
            frozen.send_signal(signal.SIGCONT)
            _, said = frozen.communicate("go on\n", timeout=DEADLINE)
            assert frozen.returncode == 0, said
            self.run()

    def _has_reached(self, line: str) -> bool:
        return line in self.told()

    def _stop(self, process: subprocess.Popen[str]) -> bool:
        """Freeze a process and declare it dead; if another thread of it holds the store's file just now, let it go on."""
        process.send_signal(signal.SIGSTOP)
        os.waitpid(process.pid, os.WUNTRACED)
        try:
            self.recover()
        except StoreBusy:
            process.send_signal(signal.SIGCONT)
            return False
        return True

    def told(self) -> list[str]:
        """Return what was reached so far."""
        return self.log.read_text().splitlines() if self.log.exists() else []

    def check(self) -> list[str]:
        """Check that each order was written once, and return what was told."""
        assert self.ask("select id, count(*) from orders group by id order by id") == [(n, 1) for n in range(self.number)]
        assert sum(self.app.inspect.counts().values()) == 0
        self.app.close()
        return self.told()
