"""A desk: schedules, unique and expiring jobs, explaining, acting on many, and a test.

python examples/desk.py                                  a new temporary store
LANEWAY_URL=sqlite:///desk.db python examples/desk.py    a store of yours: a second run finds what the first one left
"""

# ruff: noqa: T201, S101 - an example prints, and a test asserts

from __future__ import annotations

import os
import tempfile
from datetime import timedelta

from laneway import App, Retry, Worker

app = App(os.environ.get("LANEWAY_URL") or f"sqlite:///{tempfile.mkdtemp(prefix='laneway-desk-')}/desk.db")


@app.task(schedule="0 3 * * *", timezone="Europe/Paris")
def clean_up(days: int = 30) -> None:
    """Every night at three, in Paris. It fires once, however many workers run."""
    print(f"what is older than {days} days is gone")


@app.task(schedule=timedelta(minutes=5), catch_up="none")
def measure() -> None:
    """Every five minutes; what was missed while no worker ran is not made up for."""


# Once per customer, as long as the first one has not begun; and one at a time while it runs.
@app.task(unique="customer_id", lane="customer_id")
def refresh(customer_id: int, reason: str = "") -> None:
    """Read a customer's data again, for all reasons that have come up until then."""
    print(f"customer {customer_id} is fresh ({reason})")


@app.task(expires=300)
def send_code(phone: str) -> None:
    """Nobody waits longer than five minutes for a code."""
    print(f"code to {phone}")


@app.task(queue="mail", retry=Retry(times=0))
def newsletter(user_id: int) -> None:
    """Goes wrong, so that there is something to repair."""
    raise ConnectionError(f"no route to user {user_id}")


def use_it() -> None:
    """What a program does."""
    first, second = refresh.enqueue(7, "paid"), refresh.enqueue(7, "moved")
    print("the same job:", first == second)
    send_code.using(expires=timedelta(minutes=1)).enqueue("0170 1")
    newsletter.enqueue_many((user,) for user in range(3))
    Worker(app).run(burst=True)


def look_after_it() -> None:
    """What an operator does; the commands `laneway schedules` and `laneway jobs` do the same."""
    for schedule in app.inspect.schedules():
        print(f"{schedule.task}: {schedule.schedule}, next {schedule.next_at:%H:%M} UTC")
    app.inspect.run_schedule(clean_up.name)
    dead = app.inspect.jobs("dead", error="no route")
    print(app.inspect.explain(dead[0].id))
    print("replayed:", app.inspect.retry_all("dead", queue="mail"), "deleted:", app.inspect.delete_all(queue="mail"))
    Worker(app).run(burst=True)


def test_it() -> None:
    """What a test does: neither a worker nor a file, and no waiting."""
    with app.testing("fake") as jobs:
        send_code.using(run_after=60).enqueue("0170 2")
        jobs.assert_enqueued(send_code, "0170 2")
        assert jobs.drain() == 0
        jobs.advance(60)
        assert jobs.drain() == 1


if __name__ == "__main__":
    use_it()
    look_after_it()
    test_it()
    app.close()
