"""Stage 4: a sweeper. Now and then it enqueues all that is outstanding, and so mends whatever was lost.

python examples/billing/sweeper.py

A sweep asks the database, not the store. An invoice whose job waits, runs or is retried gets no second one: `unique="invoice"`
with `unique_until="end"`, see `charge`. A dead job is no reason to give up: its key has ended, so the next sweep tries again.
"""

from __future__ import annotations

import os
from datetime import timedelta

import books
from invoices import app, charge, make

__all__ = ["app", "charge", "charge_outstanding"]

#: Seconds; ten minutes would do for a month's invoices.
EVERY = float(os.environ.get("BILLING_SWEEP", "1"))


@app.task(name="charge_outstanding", queue="sweeps", schedule=timedelta(seconds=EVERY), lane=lambda: "sweep", expires=60)
def charge_outstanding() -> None:
    """Enqueue what is not charged yet: a thousand at a time, the oldest first. The lane lets no two sweeps run at once."""
    added = charge.enqueue_many((number,) for number in books.outstanding(1000))
    if added:
        books.note_sweep(added)


if __name__ == "__main__":
    from rig import show

    show(__file__, make, loses_jobs=True, sweeps=True)
