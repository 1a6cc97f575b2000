"""Stage 2: fan-out. One small job for each customer; they run side by side and are retried one by one.

python examples/billing/fan_out.py

A customer whose charge always fails holds up nobody else now. But a job that is killed after the charge runs again, and charges
again. And the jobs are the only note of who is to pay: `next_charge_on` has moved on. If the store is lost, nobody knows who has
not paid.
"""

from __future__ import annotations

import books
import payments
from laneway import App, Retry

app = App(books.STORE)


@app.task(name="charge_subscriptions", queue="billing", retry=Retry(times=50, backoff=0.1))
def charge_subscriptions() -> None:
    """Enqueue a charge for all whose month is due."""
    customers = [customer for customer, _ in books.due()]
    charge_customer.enqueue_many((customer,) for customer in customers)
    with books.transaction() as conn:
        books.move_on(conn, customers)


@app.task(name="charge_customer", queue="charges", retry=Retry(times=50, backoff=0.1))
def charge_customer(customer: int) -> None:
    """Charge one customer, whatever the price is by now."""
    payments.charge(customer, books.price(customer))


if __name__ == "__main__":
    from rig import show

    show(__file__, charge_subscriptions.enqueue, loses_jobs=True)
