"""The demo's shop: an app as a user would write it, a producer that keeps enqueueing, and a ledger.

Charges are in lanes, one per customer. Each run of a charge writes down when it begins and how it ends, in a ledger that knows
nothing of Laneway; from that alone `check` says afterwards whether any customer's charges overlapped or overtook.

Enters: nothing.  Leaves: jobs, and a ledger.
"""

# ruff: noqa: S311, ARG001 - chance makes the shop lively and keeps no secrets; the work itself is only acted

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Container, Iterable
from typing import Literal, NamedTuple

from laneway import App, Retry, current_job

__all__ = ["LedgerEntry", "Producer", "LedgerCheck", "app", "check", "ledger"]

CUSTOMERS = ("ada", "ben", "cleo", "dan", "eve", "finn", "gus", "hana")
GOODS = ("tea", "cup", "kettle", "spoon", "biscuits")

app = App("sqlite://")  # the demo puts a file in its place


class BankTimeout(Exception):
    """Worth another try."""


class CardDeclined(Exception):
    """Trying again is of no use."""


class OutOfStock(Exception):
    """The warehouse says no; it may change its mind."""


class LedgerEntry(NamedTuple):
    """A line of the ledger."""

    customer: str
    number: int  #: 1 is the customer's first charge
    what: Literal["begins", "done", "failed"]


ledger: list[LedgerEntry] = []


@app.task(name="send_email")
def send_email(address: str) -> None:
    """Plain: any number at once."""
    time.sleep(random.uniform(0.01, 0.06))


@app.task(name="charge", queue="billing", lane="customer", retry=Retry(times=3, backoff=0.6, give_up_on=(CardDeclined,)))
def charge(customer: str, number: int) -> None:
    """Take money: one at a time for each customer, in order, retries included."""
    ledger.append(LedgerEntry(customer, number, "begins"))
    time.sleep(random.uniform(0.03, 0.12))
    luck = random.random()
    ledger.append(LedgerEntry(customer, number, "failed" if luck < 0.1 else "done"))
    if luck < 0.015:
        raise CardDeclined(f"charge {number} of {customer}: the bank declined the card")
    if luck < 0.1:
        raise BankTimeout("the bank did not answer in time")


@app.task(name="reserve", queue="stock", retry=Retry(times=2, backoff=lambda retries: 0.4 * 2**retries))
def reserve(item: str) -> None:
    """Fails often; after three attempts it gives up."""
    time.sleep(random.uniform(0.01, 0.05))
    if random.random() < 0.4:
        raise OutOfStock(f"no {item} left in the warehouse")


@app.task(name="remind")
def remind(customer: str) -> None:
    """Enqueued to run a little later."""
    time.sleep(0.01)


@app.task(name="fetch_rate", queue="stock")
async def fetch_rate(currency: str) -> None:
    """Async: waits on the event loop and takes no thread."""
    import asyncio  # noqa: PLC0415 - only a worker that runs it needs an event loop

    await asyncio.sleep(random.uniform(0.1, 0.8))


@app.task(name="sales_report")
def sales_report(month: str) -> None:
    """Takes a while, and reports its progress."""
    job = current_job()
    for step in range(30):
        job.progress(step, 30)
        time.sleep(0.1)


class Producer(threading.Thread):
    """Keeps enqueueing, about forty jobs a second, until it is told to stop."""

    def __init__(self) -> None:
        super().__init__(name="demo-producer", daemon=True)
        self._enough = threading.Event()
        self._charges: Counter[str] = Counter()

    def run(self) -> None:
        """Enqueue a little every tenth of a second."""
        turn = 0
        while not self._enough.wait(0.1):
            self._enqueue(turn)
            turn += 1

    def stop(self) -> None:
        """Enqueue nothing more."""
        self._enough.set()
        if self.is_alive():
            self.join()

    def _enqueue(self, turn: int) -> None:
        send_email.enqueue_many([(f"{random.choice(CUSTOMERS)}@example.com",)] * random.randint(0, 3))
        for _ in range(random.randint(0, 2)):
            self._charge(random.choice(CUSTOMERS), 1)
        if turn % 12 == 5:
            self._charge(random.choice(CUSTOMERS), 9)  # a customer buys the whole shop
        if turn % 2:
            reserve.enqueue(random.choice(GOODS))
            fetch_rate.enqueue("EUR")
        if turn % 5 == 0:
            remind.using(run_after=random.uniform(1, 3)).enqueue(random.choice(CUSTOMERS))
        if turn % 35 == 0:
            sales_report.enqueue(time.strftime("%B"))

    def _charge(self, customer: str, times: int) -> None:
        for _ in range(times):
            self._charges[customer] += 1
            charge.enqueue(customer, self._charges[customer])


class LedgerCheck(NamedTuple):
    """What the ledger says."""

    lanes: int
    runs: int
    charges: int
    mistakes: list[str]  #: none, if lanes keep their promise


def check(entries: Iterable[LedgerEntry], dead: Container[tuple[str, int]] = (), *, in_order: bool = True) -> LedgerCheck:
    """Read a ledger: in each lane runs must not overlap, and a number follows the one before it that is done or dead.

    A number may come again after it failed. `dead` are the charges that gave up, as customer and number. If a user removed or
    replayed jobs, order says nothing: without `in_order` only runs that overlap are mistakes.

    >>> check([LedgerEntry("ada", 1, "begins"), LedgerEntry("ada", 1, "failed"), LedgerEntry("ada", 2, "begins")]).mistakes
    ['ada: 2 came after 1 (failed)']
    """
    running: dict[str, int] = {}
    last: dict[str, LedgerEntry] = {}
    seen: set[tuple[str, int]] = set()
    mistakes: list[str] = []
    runs = 0
    for entry in entries:
        customer, number, what = entry
        if what != "begins":
            running.pop(customer, None)
            last[customer] = entry
            continue
        runs += 1
        seen.add((customer, number))
        if customer in running:
            mistakes.append(f"{customer}: {number} began while {running[customer]} ran")
        before = last.get(customer, LedgerEntry(customer, 0, "done"))
        again = number == before.number and before.what == "failed"
        over = before.what == "done" or (customer, before.number) in dead
        if in_order and not again and not (over and number == before.number + 1):
            mistakes.append(f"{customer}: {number} came after {before.number} ({before.what})")
        running[customer] = number
    return LedgerCheck(len({customer for customer, _ in seen}), runs, len(seen), mistakes)
