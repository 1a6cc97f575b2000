"""The shop with Laneway: how it is afterwards.

laneway worker jobs.py -p 2                      everything, the report included; charges stay in order on any number of workers
"""

from __future__ import annotations

from datetime import timedelta

import work
from laneway import App, Retry
from settings import MOVED, REDIS

app = App(f"{REDIS}/3")

send_email = app.task(name="shop.send_email", retry=Retry(times=5, on=(ConnectionError,), backoff=1))(work.send_email)
charge = app.task(name="shop.charge", queue="billing", lane="customer")(work.charge)
reserve = app.task(name="shop.reserve", queue="orders", lane="order", halt_on_death=True)(work.reserve)
pack = app.task(name="shop.pack", queue="orders", lane="order", halt_on_death=True)(work.pack)
ship = app.task(name="shop.ship", queue="orders", lane="order", halt_on_death=True)(work.ship)
compute_price = app.task(name="shop.price", keep_result=3600)(work.price)
report = app.task(name="shop.report")(work.report)
if "report" in MOVED:
    app.schedule(report.bind(), timedelta(seconds=1), name="report")


def process(order: int) -> None:
    """Three steps, one after the other: in the lane of the order."""
    app.enqueue_many([reserve.bind(order), pack.bind(order), ship.bind(order)])


def price(cents: int) -> int:
    """Ask for one, and wait for it."""
    return compute_price.enqueue(cents).result(timeout=20)
