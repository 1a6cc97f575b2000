"""A small shop: tasks, lanes, delays and bulk, and a look at what waits.

python examples/shop.py                                  a new temporary store
LANEWAY_URL=sqlite:///shop.db python examples/shop.py    a store of yours: a second run adds to it
"""

# ruff: noqa: T201 - an example prints

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from datetime import timedelta

from laneway import App, Retry

app = App(os.environ.get("LANEWAY_URL") or f"sqlite:///{tempfile.mkdtemp(prefix='laneway-shop-')}/shop.db")


@dataclass
class Item:
    """Annotated values travel whole: a worker gets an Item again, not a dict."""

    name: str
    cents: int


@app.task
def send_email(address: str, *, template: str = "welcome") -> None:
    """Alone in a lane of its own: any number run at once."""
    print(f"{template} to {address}")


# The lane is the value of customer_id: one customer's charges never overlap and never overtake.
@app.task(queue="billing", lane="customer_id", retry=Retry(times=3, backoff=60))
def charge(customer_id: int, item: Item) -> None:
    """Take money. Two at once for one customer would race; in a lane they cannot."""
    print(f"customer {customer_id} pays {item.cents} for {item.name}")


@app.task(priority=-10)
def remind(customer_id: int) -> None:
    """Less urgent than all else in its queue."""
    print(f"customer {customer_id}, your basket is waiting")


def enqueue_some() -> None:
    """Every way to enqueue."""
    send_email.enqueue("ada@example.com")
    send_email.using(priority=50).enqueue("bob@example.com", template="password")

    for item in (Item("tea", 450), Item("cup", 1200), Item("spoon", 300)):
        charge.enqueue(7, item)
    charge.enqueue(8, Item("kettle", 3900))

    # An id of your own makes a repeat harmless for as long as the first is in the store.
    for _ in range(2):
        reminder = remind.using(run_after=timedelta(hours=1), id="remind-7").enqueue(7)
        print(f"{reminder.id}: {'enqueued' if reminder.created else 'was there already'}, {reminder.state()}")

    sent = send_email.enqueue_many((f"reader-{n}@example.com",) for n in range(1000))
    mixed = app.enqueue_many([send_email.bind("eve@example.com", template="bye"), remind.using(run_after=60).bind(8)])
    print(f"in bulk: {sent} and {mixed} more")


def show() -> None:
    """What waits, by state, by queue, and in one lane."""
    print(f"\n{app.url}")
    print("counts:", {state: number for state, number in app.inspect.counts().items() if number})
    for queue in app.inspect.queues():
        print(f"queue {queue.name}: {queue.counts['ready']} ready, {queue.counts['scheduled']} scheduled")
    print("the lane of customer 7, in the order in which it will run:")
    for job in app.inspect.jobs(queue="billing", lane="7"):
        print(f"  {job.id}  {job.state}  {job.args}")
    print("totals:", app.stats.totals())


if __name__ == "__main__":
    enqueue_some()
    show()
    app.close()
