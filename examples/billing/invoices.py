"""Stage 3: the database is the source of truth. What is to be charged is a row, an invoice; the job only names it.

python examples/billing/invoices.py                 show it, with a kill and lost jobs
python examples/billing/invoices.py make            only make the month's invoices: what cron would start each morning

An invoice, its subscription's next date and its job are one transaction. Four rules let every piece run twice:

    unique (customer, month), on conflict do nothing    makes one invoice, however many programs make invoices
    app.transaction(conn)                               an invoice and its job, or neither
    charged_at                                          a job that comes late finds the invoice charged
    the provider's key                                  a job that is killed after the charge gets the same receipt again

If the store is lost, the invoices are not: `charged_at is null` says who has not paid. Stage 4 makes use of it.
"""

from __future__ import annotations

import os
import sys

import books
import payments
from laneway import App, Retry

# With jobs in Redis, `app.transaction` writes rows into our database, and a relay in the workers makes jobs of them.
app = App(books.STORE, outbox=None if books.SAME_DATABASE else books.DATABASE)
#: So many customers in one transaction: it should be short, since others wait for it.
PAGE = int(os.environ.get("BILLING_PAGE", "250"))


@app.task(name="charge", queue="charges", unique="invoice", unique_until="end", retry=Retry(times=100, backoff=[0.1, 0.3, 1]))
def charge(invoice: int) -> None:
    """Charge one invoice, once, however often this runs."""
    customer, cents, charged_at = books.invoice(invoice)
    if charged_at is not None and books.WITHOUT != "charged-at":
        return
    # The key is the invoice's own: the same in every run, and in every job about it.
    key = None if books.WITHOUT == "key" else f"invoice-{invoice}"
    books.mark_charged(invoice, payments.charge(customer, cents, key=key))


def make_invoices(customers: list[int]) -> None:
    """Make this month's invoices of these customers, each with its job."""
    with books.transaction() as conn, app.transaction(conn):
        charge.enqueue_many((number,) for number in books.make_invoices(conn, customers))


def make() -> None:
    """Make the invoices of all who are due. With `wait` they are read first, and made when a line comes in."""
    customers = [customer for customer, _ in books.due()]
    say(f"{len(customers)} are due")
    if "wait" in sys.argv:
        sys.stdin.readline()
    for start in range(0, len(customers), PAGE):
        make_invoices(customers[start : start + PAGE])
        if start == 0:
            say("the first invoices are made")


def say(text: str) -> None:
    """Tell whoever started this program."""
    print(text, flush=True)  # noqa: T201 - as it says


if __name__ == "__main__":
    if "make" in sys.argv:
        make()
    else:
        from rig import show

        show(__file__, make, loses_jobs=True)
