"""A worker whose jobs write an order once, and that kills itself on the way. Run by test_once_killed.py.

Arguments: the store's URL, the database's address for the driver, the driver, and where it dies: at `write` (between the write
and the commit), at `commit` (between the commit and the settle), or `never`. It prints the orders that were there already.
"""

from __future__ import annotations

import os
import signal
import sys

from laneway import App, Worker, current_job
from transactbench import POSTGRES, SQLITE, Seat, play

_, URL, ADDRESS, DRIVER, DIES = sys.argv

app = App(URL, enqueue_timeout=30)


def reach(point: str) -> None:
    if point == DIES:
        os.kill(os.getpid(), signal.SIGKILL)


async def write(seat: Seat, order: int) -> None:
    await seat.open()
    await seat.begin()
    if seat.is_async:
        async with current_job().once(seat.connection) as first:
            await put(seat, order, first)
    else:
        with current_job().once(seat.connection) as first:
            await put(seat, order, first)
    reach("write")
    await seat.commit()
    reach("commit")
    await seat.close()


async def put(seat: Seat, order: int, first: bool) -> None:
    if first:
        await seat.write(order)
    else:
        sys.stdout.write(f"again {order}\n")
        sys.stdout.flush()


@app.task(name="charge")
def charge(order: int) -> None:
    seat = (POSTGRES if "://" in ADDRESS else SQLITE)[DRIVER](ADDRESS)
    play(seat, write(seat, order))


if __name__ == "__main__":
    Worker(app, slots=1).run(burst=True)
