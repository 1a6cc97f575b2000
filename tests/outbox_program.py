"""Relays that are killed and frozen, at the worst moments and at any. Run by test_outbox_killed.py.

Arguments: the store's URL, the outbox's URL, the database's address for a driver, how many kills and freezes, a seed, and where
the evidence goes. Two programs commit orders with rows of the outbox; a worker runs the jobs at once, so that their ids are free
again, and writes each into a file; three relays carry rows over. Relays kill or freeze themselves between their steps, and are
killed from outside. Who is frozen is woken when others have taken over.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sqlite3
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from laneway import App, Worker
from laneway.kernel import die_with
from laneway.outbox import relay as relays
from laneway.outbox.database import open_database
from laneway.outbox.relay import Carried, Relay
from laneway.outbox.status import read_status
from laneway.worker.duties import relay as duties

_, STORE, OUTBOX, ADDRESS, HARMS, SEED, FOLDER = sys.argv
chance = random.Random(SEED)  # noqa: S311 - a kill is no secret
folder = Path(FOLDER)
relays.LEASE = 0.3
duties.WAITS = 0.1
#: How often a relay harms itself before and after handing rows over.
OFTEN = 0.1 if int(HARMS) > 10 else 0.3
#: How long a producer rests between transactions: without rest relays hardly ever get SQLite's lock, and few are harmed.
REST = 0.001 if int(HARMS) > 10 else 0.01
#: For how long relays are frozen: for less than the lease, and for three times as long and more.
FROZEN = (0.1, 1.5 if int(HARMS) > 10 else 0.9)


def write(name: str, line: str) -> None:
    """Append a line to a file, in one step."""
    descriptor = os.open(folder / name, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, f"{line}\n".encode())
    os.close(descriptor)


def an_app(outbox: str | None) -> App:
    app = App(STORE, outbox=outbox, enqueue_timeout=30)

    @app.task(name="ship", lane="lane")
    def ship(order: int, lane: str) -> None:
        write("ran", f"{order} {lane}")

    @app.collector(name="save")
    def save(lanes: dict[str, list[int]]) -> None:
        for payloads in lanes.values():
            for order in payloads:
                write("saved", str(order))

    return app


class Harmed(Relay):
    """A relay that is killed or frozen before or after it hands rows over."""

    def _push(self, carried: Carried) -> None:
        self.harm("numbered")
        super()._push(carried)
        self.harm("pushed")

    def harm(self, where: str) -> None:
        if chance.random() < OFTEN:
            how = chance.choice((signal.SIGKILL, signal.SIGSTOP))
            write("harms", f"{how.name} {where}")
            os.kill(os.getpid(), how)


def relay() -> None:
    app = an_app(OUTBOX)
    assert app.outbox is not None
    duty = duties.RelayDuty(app, app.outbox)
    duty.relay = Harmed(open_database(app.outbox), lambda: app.store, at_once=chance.choice((3, 30, 1000)))
    duty.run()


def connect() -> Any:
    if "://" in ADDRESS:
        import psycopg  # noqa: PLC0415 - it may be missing

        return psycopg.connect(ADDRESS)
    return sqlite3.connect(ADDRESS, timeout=60)


def produce(number: int) -> None:
    app, connection = an_app(OUTBOX), connect()
    ended = []
    signal.signal(signal.SIGTERM, lambda *_: ended.append(True))
    order = number * 10_000_000
    while not ended:
        with app.transaction(connection):
            for _ in range(chance.randint(1, 5)):
                order += 1
                connection.execute(f"insert into orders values ({order})")  # noqa: S608 - a number
                app.enqueue("ship", order, f"{number}-{chance.randint(1, 3)}")
                if order % 5 == 0:
                    app.declared["save"].enqueue("lane", order)  # type: ignore[attr-defined]
        if chance.random() < 0.1:
            connection.rollback()
        else:
            connection.commit()
        time.sleep(REST)
    connection.close()


def work() -> None:
    Worker(an_app(None), slots=4).run()


def fork(what: Callable[[], None]) -> int:
    seed, parent = chance.random(), os.getpid()
    pid = os.fork()
    if pid:
        return pid
    try:
        die_with(parent)  # a test that gives up leaves nobody behind
        chance.seed(seed)
        what()
        os._exit(0)
    except BaseException:  # noqa: BLE001 - a child of this program never goes on as its parent
        import traceback  # noqa: PLC0415

        traceback.print_exc()
    os._exit(1)


class Scene:
    """All processes, and what happens to them."""

    def __init__(self) -> None:
        self.worker = fork(work)
        self.producers = [fork(lambda: produce(1)), fork(lambda: produce(2))]
        self.relays = {fork(relay) for _ in range(3)}
        self.frozen: dict[int, float] = {}  # until when
        self.producing = True
        self.kills = 0

    def reap(self) -> None:
        """Note who was frozen, and let another relay begin for each that was killed."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
            except ChildProcessError:
                return
            if not pid:
                return
            if os.WIFSTOPPED(status):
                self.frozen[pid] = time.monotonic() + chance.uniform(*FROZEN)
            elif pid in self.relays:
                self.relays.discard(pid)
                self.frozen.pop(pid, None)
                self.relays.add(fork(relay))
            elif pid in self.producers and not self.producing:
                self.producers.remove(pid)
            else:
                sys.exit(f"a child ended by itself: {status}")

    def wake(self) -> None:
        """Wake those that have been frozen for long enough."""
        for pid, until in list(self.frozen.items()):
            if time.monotonic() > until:
                del self.frozen[pid]
                os.kill(pid, signal.SIGCONT)

    def kill(self) -> None:
        """Kill a relay now and then, wherever it is; not more often than they harm themselves, which they do only at work."""
        if chance.random() < 0.02 and self.kills <= harms():
            self.kills += 1
            write("harms", "SIGKILL outside")
            os.kill(chance.choice(sorted(self.relays)), signal.SIGKILL)

    def stop_producing(self) -> None:
        """Let no more orders come."""
        if self.producing:
            self.producing = False
            for pid in self.producers:
                os.kill(pid, signal.SIGTERM)

    def end(self) -> None:
        """End all."""
        for pid in (*self.relays, self.worker):
            os.kill(pid, signal.SIGKILL)


def harms() -> int:
    """How often relays harmed themselves."""
    with contextlib.suppress(FileNotFoundError):
        return sum("outside" not in line for line in (folder / "harms").read_text().splitlines())
    return 0


def main() -> None:
    """Go on until there were enough harms, then until nothing is left."""
    app = an_app(OUTBOX)
    assert app.outbox is not None
    database = open_database(app.outbox)
    scene = Scene()
    rests = 0
    while rests < 3:
        time.sleep(0.02)
        scene.reap()
        scene.wake()
        if harms() < int(HARMS):
            scene.kill()
            continue
        scene.stop_producing()
        if not scene.frozen and not scene.producers:
            left = read_status(database).waiting + sum(app.inspect.counts().values())
            rests = 0 if left else rests + 1
    scene.end()


main()
