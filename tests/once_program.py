"""A worker whose jobs write an order once, and that dies or freezes on the way. Run by oncebench.py.

Arguments: the store's URL, the database's address for the driver, the driver, how each order is written once (`once`, `finish`),
a file for what is reached, and where the worker ends: `kill` or `freeze`, and at which point; or `never`. Points are `begin`
(before it writes), `write` (between the write and the commit) and `commit` (between the commit and the settle). Where it is to
be frozen its job waits for a line, once.
"""

from __future__ import annotations

import os
import signal
import sys

from laneway import App, Worker, current_job
from laneway.errors import ClaimLost
from transactbench import POSTGRES, SQLITE, Seat, play

_, URL, ADDRESS, DRIVER, HOW, LOG, ENDS = sys.argv

app = App(URL, enqueue_timeout=30)
log = os.open(LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
ends = [ENDS]


def reach(point: str, order: int) -> None:
    """Tell what was reached, and end there if it is the point."""
    os.write(log, f"{point} {order}\n".encode())
    if ends == [f"kill {point}"]:
        os.kill(os.getpid(), signal.SIGKILL)
    if ends == [f"freeze {point}"]:
        ends.clear()
        sys.stdin.readline()


async def write(seat: Seat, order: int) -> None:
    await seat.open()
    if DRIVER == "sqlite3":  # another thread of the worker may write just then, as one that was frozen does when it wakes up
        await seat.execute("pragma busy_timeout = 30000")
    try:
        await seat.begin()
        reach("begin", order)
        if HOW == "finish":
            await finish(seat, order)
        else:
            await once(seat, order)
        reach("write", order)
        await seat.commit()
        reach("commit", order)
    finally:
        await seat.close()


async def finish(seat: Seat, order: int) -> None:
    await seat.write(order)
    try:
        if seat.is_async:
            await current_job().afinish(seat.connection)
        else:
            current_job().finish(seat.connection)
    except ClaimLost:
        reach("lost", order)
        raise


async def once(seat: Seat, order: int) -> None:
    if seat.is_async:
        async with current_job().once(seat.connection) as first:
            await put(seat, order, first)
    else:
        with current_job().once(seat.connection) as first:
            await put(seat, order, first)


async def put(seat: Seat, order: int, first: bool) -> None:
    if first:
        await seat.write(order)
    else:
        reach("again", order)


@app.task(name="charge")
def charge(order: int) -> None:
    seat = (POSTGRES if "://" in ADDRESS else SQLITE)[DRIVER](ADDRESS)
    play(seat, write(seat, order))


if __name__ == "__main__":
    Worker(app, slots=1).run(burst=True)
