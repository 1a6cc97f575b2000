"""Orders from another system, which sends the whole order again whenever it changes.

python examples/orders/app.py                                    a new temporary store
LANEWAY_URL=sqlite:///orders.db python examples/orders/app.py    a store of yours

Messages about one order come close together. Handled side by side, an old one may be saved after a newer one, and the shop shows
a total that is no more: `save_naively` does that. The collector `save_newest` cannot. An order is a lane, its messages gather
there, a run gets them in the order of their versions, and no two runs of a lane overlap. It also saves less often: only the
newest of what has gathered.
"""

# ruff: noqa: T201, S311 - an example prints, and its chance is no secret

from __future__ import annotations

import os
import random
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

from laneway import App, Worker

ORDERS, VERSIONS = 40, 10

app = App(os.environ.get("LANEWAY_URL") or f"sqlite:///{tempfile.mkdtemp(prefix='laneway-orders-')}/orders.db")


@dataclass
class Order:
    """An order as it was at one moment."""

    id: int
    version: int
    total: int


class Shop:
    """Our own copy of the orders: the last write wins, as in most databases."""

    def __init__(self) -> None:
        self.orders: dict[int, Order] = {}
        self.saves = 0
        self._lock = threading.Lock()

    def save(self, order: Order) -> None:
        """Save an order. It takes a moment, sometimes a longer one."""
        time.sleep(random.uniform(0, 0.004))
        with self._lock:
            self.saves += 1
            self.orders[order.id] = order

    def overwritten(self) -> int:
        """Count the orders that an older version has overwritten."""
        return sum(order.version < VERSIONS for order in self.orders.values())


naive, careful = Shop(), Shop()


@app.task
def save_naively(order: Order) -> None:
    """One job for each message, side by side."""
    naive.save(order)


@app.collector(lane=lambda order: order.id, score=lambda order: order.version, max_lanes=5)
def save_newest(lanes: dict[str, list[Order]]) -> None:
    """Up to five orders at a time, each with all messages about it that have gathered, the newest last."""
    for versions in lanes.values():
        careful.save(versions[-1])


def messages() -> Iterator[Order]:
    """What the other system sends: an order changes several times within moments."""
    for number in range(1, ORDERS + 1):
        for version in range(1, VERSIONS + 1):
            yield Order(number, version, total=100 - version)


def main() -> None:
    """Send everything twice: once to each."""
    save_naively.enqueue_many((order,) for order in messages())
    save_newest.enqueue_many(messages())
    Worker(app, slots=10).run(burst=True)
    print(f"{ORDERS * VERSIONS} messages about {ORDERS} orders")
    print(f"one job each:  {naive.saves:3} saves, {naive.overwritten():2} orders overwritten by an older version")
    print(f"a collector:   {careful.saves:3} saves, {careful.overwritten():2} orders overwritten by an older version")


if __name__ == "__main__":
    main()
