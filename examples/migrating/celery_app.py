"""The shop with Celery: how it was before.

celery -A celery_app worker -Q celery            emails, orders, prices
celery -A celery_app worker -Q billing -c 1      charges: one process, so that they stay in order
celery -A celery_app beat                        the report
"""

from __future__ import annotations

import os

from celery import Celery, chain

import work
from settings import MOVED, REDIS

app = Celery("shop", broker=f"{REDIS}/0", backend=f"{REDIS}/1")
app.conf.beat_schedule_filename = os.environ.get("BEAT_FILE", "celerybeat-schedule")
if "report" not in MOVED:
    app.conf.beat_schedule = {"report": {"task": "shop.report", "schedule": 1.0}}

send_email = app.task(
    work.send_email, name="shop.send_email", autoretry_for=(ConnectionError,), max_retries=5, default_retry_delay=1
)
charge = app.task(work.charge, name="shop.charge", queue="billing")
reserve = app.task(work.reserve, name="shop.reserve")
pack = app.task(work.pack, name="shop.pack")
ship = app.task(work.ship, name="shop.ship")
compute_price = app.task(work.price, name="shop.price")
report = app.task(work.report, name="shop.report", ignore_result=True)


def process(order: int) -> None:
    """Three steps, one after the other."""
    chain(reserve.si(order), pack.si(order), ship.si(order)).delay()


def price(cents: int) -> int:
    """Ask for one, and wait for it."""
    return int(compute_price.delay(cents).get(timeout=20))
