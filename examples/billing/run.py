"""A month's charges, while everything is killed: proved from the provider's own ledger.

python examples/billing/run.py                                           2,000 customers, 5 kills, an SQLite file
python examples/billing/run.py --customers 100000 --kills 50 --store redis
python examples/billing/run.py --without-key                             leave a rule out: the ledger tells

It starts a payment provider, a fleet of workers with the sweeper of stage 4, and two programs that make the invoices at the same
time, as if cron ran on two hosts. On the way it kills -9 workers, the supervisor, the provider, these programs, and the store's
server; whatever has died is started again. At the end the provider forgets its keys, as real ones do after a day, and jobs of
yesterday come once more. Then the ledger is compared with what was due: each customer charged once, the right sum, every invoice
charged, and nothing left in the queue. Exit 0 if all of it is so, and 1 with lines that say what is not.
"""

# ruff: noqa: T201, S311, S603 - an example prints, its chance is no secret, and it starts programs of its own

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from rig import (
    HERE,
    Fleet,
    Ledger,
    Postgres,
    Program,
    Redis,
    charged_wrongly,
    euros,
    make_outbox,
    prices_of,
    provider,
    python,
    wait_until,
)

RULES = ("key", "charged-at", "conflict")
#: Seconds in which nothing moves until it is called stuck. A busy machine may need some to start what was killed.
STUCK = 120.0


def main() -> int:
    """Run, judge and say."""
    asked = parse()
    chance = random.Random(asked.seed)
    folder = Path(tempfile.mkdtemp(prefix="laneway-billing-"))
    wrong: list[str] = []
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # whatever was started ends too
    with contextlib.ExitStack() as stack:
        month = Month(asked, folder, stack)
        try:
            kills = month.charge_everybody(chance)
            month.repeat_yesterday()
            wrong = list(month.audit())
        except Stuck as error:
            kills, wrong = month.killed, [str(error)]
        print(month.summary(kills))
    for line in wrong:
        print(f"wrong: {line}")
    if wrong:
        print(f"seed {asked.seed}; the ledger and what all programs said are in {folder}")
        return 1
    print("right: each customer charged once, the sum is what was due, every invoice is charged, nothing is left in the queue")
    shutil.rmtree(folder, ignore_errors=True)
    return 0


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="A month's charges, while everything is killed.")
    parser.add_argument("--customers", type=int, default=2000)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument(
        "--store", default="sqlite", help="sqlite, redis or postgresql: one of its own; or the URL of an empty one"
    )
    parser.add_argument("--processes", type=int, default=2, help="worker processes")
    parser.add_argument("--slots", type=int, default=8, help="charges at a time, in each of them")
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    for rule in RULES:
        parser.add_argument(
            f"--without-{rule}", dest="without", action="store_const", const=rule, default="", help="leave it out"
        )
    return parser.parse_args()


class Stuck(Exception):
    """Nothing has moved for long."""


class Month:
    """One run: its programs, and what they have done so far."""

    def __init__(self, asked: argparse.Namespace, folder: Path, stack: contextlib.ExitStack) -> None:
        self.asked = asked
        self.prices = prices_of(asked.customers)
        self.killed: Counter[str] = Counter()
        self._store = start_store(asked.store, folder, stack)
        os.environ.update(
            BILLING_WITHOUT=asked.without, BILLING_SWEEP="2", BILLING_PAGE=str(min(500, max(20, asked.customers // 100)))
        )
        import books  # noqa: PLC0415 - it reads the environment
        from invoices import app, charge  # noqa: PLC0415 - the same

        self._books, self._app, self._charge = books, app, charge
        stack.callback(app.close)
        wait_until(self._is_open, "the store")
        try:
            books.create(self.prices.items())
        except Exception as error:  # noqa: BLE001 - drivers have errors of their own
            sys.exit(f"{books.DATABASE} is not empty: {error}")
        if not books.SAME_DATABASE:
            make_outbox()

        self._provider = provider(folder)
        size = ("-p", str(asked.processes), "-s", str(asked.slots))
        self._fleet = Fleet(folder, HERE / "sweeper.py", *size, "--log-level", "warning")
        self._producers = [Producer(f"producer-{number}", folder) for number in (1, 2)]
        everything = (self._provider, self._fleet, *self._producers)
        for program in everything:
            stack.callback(program.stop)
        self._plan: list[tuple[float, str]] = []  #: kills to come
        self._programs: list[Program] = [*([self._store] if self._store is not None else []), *everything]
        self.began = time.monotonic()
        self.seconds = 0.0

    def _is_open(self) -> bool:
        with contextlib.suppress(Exception):  # the server is still starting
            self._app.store.migrate()
            return True
        return False

    # -- the month ---------------------------------------------------------------------------------------------------

    def charge_everybody(self, chance: random.Random) -> Counter[str]:
        """Let all of it happen, with kills on the way; return who was killed how often."""
        self._provider.start()
        self.ledger = Ledger(self._provider.log.parent)
        self._fleet.start()
        for producer in self._producers:
            producer.start_and_read()  # both know who is due before one of them writes
        wait_until(self._fleet.workers, "workers")
        for producer in self._producers:
            producer.go_on()
        for producer in self._producers:
            producer.hear()  # both have made the same invoices before one of them is killed

        self._plan = self._draw(chance)
        for charges, invoices in self._moves():
            for moment, kind in list(self._plan):
                if moment <= (invoices if kind == "producer" else charges) / self.asked.customers and self._kill(kind):
                    self._plan.remove((moment, kind))
            self._start_all()
        self.seconds = time.monotonic() - self.began
        return self.killed

    def _draw(self, chance: random.Random) -> list[tuple[float, str]]:
        """Draw when whom: at which part of the charges, or of the invoices for those who make them."""
        kinds = [*(["store"] if self._store is not None else []), "worker", "producer", "provider", "supervisor"]
        chosen = [kinds[number % len(kinds)] for number in range(self.asked.kills)]
        return sorted((chance.uniform(0.02, 0.9), kind) for kind in chosen)

    def _kill(self, kind: str) -> bool:
        """Kill one of a kind, or a worker if all producers are done. Return False if none of them runs just now."""
        if kind == "producer" and all(producer.is_done for producer in self._producers):
            kind = "worker"
        kills: dict[str, list[Callable[[], bool]]] = {
            "producer": [producer.kill for producer in self._producers],
            "worker": [self._fleet.kill_a_worker],
            "provider": [self._provider.kill],
            "supervisor": [self._fleet.kill],
            "store": [self._store.kill] if self._store is not None else [],
        }
        is_killed = any(kill() for kill in kills[kind])
        self.killed[kind] += is_killed
        return is_killed

    def _start_all(self) -> None:
        """Start what was killed, as systemd would."""
        for program in self._programs:
            program.start()

    def repeat_yesterday(self) -> None:
        """Let jobs come late: the provider has forgotten its keys, and a sweep that read its list before enqueues only now."""
        import payments  # noqa: PLC0415 - it reads the environment

        self._app.inspect.pause("sweeps")
        _, invoices = self._books.everything()
        payments.forget_keys()
        self._charge.enqueue_many((number,) for number, *_ in invoices[:1000])
        for _ in self._moves():
            self._start_all()

    # -- looking -----------------------------------------------------------------------------------------------------

    def _moves(self) -> Iterator[tuple[int, int]]:
        """Yield how many charges and invoices there are, again and again, until no work is left; `Stuck` if nothing moves."""
        last: object = None
        since = time.monotonic()
        while True:
            charges, invoices = self.ledger.charges(), 0
            seen: tuple[object, ...]
            try:
                invoices, outstanding = self._books.progress()
                in_queue = self._in_queue("charges")
                is_idle = not outstanding and not set(in_queue).difference(["dead"]) and "running" not in self._in_queue("sweeps")
                if is_idle and not self._plan and all(producer.is_done for producer in self._producers):
                    return
                seen = (charges, invoices, outstanding, in_queue)
            except Exception as error:  # noqa: BLE001 - the store or the database is being started again
                seen = (charges, repr(error))
            if seen != last:
                last, since = seen, time.monotonic()
            if time.monotonic() - since > STUCK:
                raise Stuck(f"nothing has moved for {STUCK:.0f} s: charges, invoices, outstanding, in the queue: {seen}")
            yield charges, invoices
            time.sleep(0.005 if invoices < self.asked.customers else 0.05)

    def _in_queue(self, name: str) -> dict[str, int]:
        found = [queue.counts for queue in self._app.inspect.queues() if queue.name == name]
        return {state: number for counts in found for state, number in counts.items() if number}

    def audit(self) -> Iterator[str]:
        """Compare the provider's ledger with what was due, and with our books; say what is wrong."""
        yield from charged_wrongly(self.ledger, self.prices)
        _, invoices = self._books.everything()
        if len(invoices) != len(self.prices):
            yield f"{len(invoices):,} invoices for {len(self.prices):,} customers"
        if open_ones := [number for number, _, _, charged_at, _ in invoices if charged_at is None]:
            yield f"{len(open_ones):,} invoices are not charged, such as {open_ones[0]}"
        charged = self.ledger.receipts()
        if unlike := [one for one, customer, cents, _, receipt in invoices if charged.get(receipt) != (customer, cents)]:
            yield f"{len(unlike):,} invoices have another receipt than the ledger, such as {unlike[0]}"
        if left := self._in_queue("charges"):
            yield f"jobs are left in the queue: {left}"

    def summary(self, kills: Counter[str]) -> str:
        """Say what happened."""
        cents, calls = self.ledger.total()
        who = ", ".join(f"{number} × {kind}" for kind, number in sorted(kills.items()))
        killed = f"{sum(kills.values())} kills ({who})" if kills else "no kills"
        return (
            f"{self.asked.store}: {self.asked.customers:,} customers, {killed} in {self.seconds:.1f} s\n"
            f"ledger: {self.ledger.charges():,} charges, {euros(cents)}, asked for {calls:,} times; "
            f"sweeps added {self._books.swept():,} jobs"
        )


class Producer(Program):
    """A program that makes the invoices of all who are due. It is started again until it has ended well."""

    def __init__(self, name: str, folder: Path) -> None:
        super().__init__(name, folder, python(HERE / "invoices.py", "make"))

    @property
    def is_done(self) -> bool:
        return self.process is not None and self.process.poll() == 0

    def start(self) -> None:
        """Start it, unless it is done."""
        if not self.is_done:
            super().start()

    def start_and_read(self) -> None:
        """Start it, and wait until it has read who is due."""
        with self.log.open("ab") as said:
            self.process = subprocess.Popen(
                [*self._command, "wait"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, start_new_session=True
            )
        self.hear()

    def hear(self) -> None:
        """Wait until it says something."""
        if self.process is None or self.process.stdout is None or not self.process.stdout.readline():
            sys.exit(f"wrong: {self.name} has ended, see {self.log}")

    def go_on(self) -> None:
        """Let it make the invoices."""
        if self.process is not None and self.process.stdin is not None:
            self.process.stdin.close()


def start_store(name: str, folder: Path, stack: contextlib.ExitStack) -> Program | None:
    """Set the environment for a store: one that is there, a file, or a server of ours, which is returned."""
    if "://" in name:
        os.environ["LANEWAY_URL"] = name
        return None
    database = f"sqlite:///{folder}/billing.db"
    if name == "sqlite":
        os.environ.update(LANEWAY_URL=database, BILLING_DATABASE=database)
        return None
    server = Redis(folder) if name == "redis" else Postgres(folder)
    server.start()
    stack.callback(server.stop)
    os.environ.update(LANEWAY_URL=server.url, BILLING_DATABASE=database if name == "redis" else server.url)
    return server


if __name__ == "__main__":
    sys.exit(main())
