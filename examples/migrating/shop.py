"""The shop in between: what enqueues goes through these functions, and each looks whether its task was moved already.

python shop.py celery 0 20                       enqueue emails, charges and orders number 0 to 19, as a program with Celery would
MOVED=send_email,charge python shop.py celery 20 40        a later deployment of the same program
"""

# ruff: noqa: T201 - an example prints

from __future__ import annotations

import os
import sys
from typing import Any

import jobs
from settings import MOVED


class Shop:
    """What the shop enqueues, wherever it goes."""

    def __init__(self, old: Any) -> None:
        self._old = old

    def send_email(self, user: int) -> None:
        if "send_email" in MOVED:
            jobs.send_email.enqueue(user)
        else:
            delay(self._old.send_email, user)

    def charge(self, customer: int, number: int) -> None:
        if "charge" in MOVED:
            jobs.charge.enqueue(customer, number)
        else:
            delay(self._old.charge, customer, number)

    def process(self, order: int) -> None:
        if "process" in MOVED:
            jobs.process(order)
        else:
            self._old.process(order)

    def price(self, cents: int) -> int:
        return int((jobs if "price" in MOVED else self._old).price(cents))


def delay(task: Any, *args: int) -> None:
    """Enqueue into the old system: a task of Celery has `delay`, and what we wrote for RQ is a function."""
    getattr(task, "delay", task)(*args)


def main(old: str, first: str, last: str) -> None:
    """Enqueue some of everything."""
    if old == "celery":
        import celery_app as old_app  # noqa: PLC0415 - one of them is enough
    else:
        import rq_app as old_app  # type: ignore[no-redef]  # noqa: PLC0415
    shop = Shop(old_app)
    for number in range(int(first), int(last)):
        shop.send_email(number)
        shop.charge(number % 3, number)
        shop.process(number)
    if os.environ.get("PRICES", "yes"):
        print(f"a price of 100, taxes included: {shop.price(100)}")
    print(f"{old}: {first} to {last}, moved: {', '.join(sorted(MOVED - {''})) or 'nothing'}")


if __name__ == "__main__":
    main(*sys.argv[1:])
