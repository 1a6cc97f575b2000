"""The shop with RQ: how it was before.

rq worker default --with-scheduler --url redis://localhost:6379/2        emails, orders, prices
rq worker billing --url redis://localhost:6379/2                         charges: one worker, so that they stay in order
"""

from __future__ import annotations

from redis import Redis
from rq import Queue, Retry

import work
from settings import REDIS

connection = Redis.from_url(f"{REDIS}/2")
default = Queue("default", connection=connection)
billing = Queue("billing", connection=connection)


def send_email(user: int) -> None:
    """Enqueue one."""
    default.enqueue(work.send_email, user, retry=Retry(max=5, interval=1))


def charge(customer: int, number: int) -> None:
    """Enqueue one."""
    billing.enqueue(work.charge, customer, number)


def process(order: int) -> None:
    """Three steps, one after the other."""
    reserved = default.enqueue(work.reserve, order)
    packed = default.enqueue(work.pack, order, depends_on=reserved)
    default.enqueue(work.ship, order, depends_on=packed)


def price(cents: int) -> int:
    """Ask for one, and wait for it."""
    result = default.enqueue(work.price, cents).latest_result(timeout=20)
    return int(result.return_value) if result else 0
