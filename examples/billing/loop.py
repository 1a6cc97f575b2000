"""Stage 1: a loop. One job charges everybody, one after the other.

python examples/billing/loop.py

A worker that is killed between the provider's charge and the next line leaves a customer who has paid and is still due. The job
runs again from its start, finds that customer, and charges again.
"""

from __future__ import annotations

import books
import payments
from laneway import App, Retry

app = App(books.STORE)


@app.task(name="charge_subscriptions", queue="billing", retry=Retry(times=50, backoff=0.1))
def charge_subscriptions() -> None:
    """Charge all whose month is due."""
    for customer, cents in books.due():
        payments.charge(customer, cents)
        with books.transaction() as conn:
            books.move_on(conn, [customer])


if __name__ == "__main__":
    from rig import show

    show(__file__, charge_subscriptions.enqueue)
