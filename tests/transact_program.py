"""A program that is killed while it writes a row and enqueues a job in one transaction. Run by test_transactions_killed.py.

Arguments: the store's URL, the database's address for the driver, the driver, how many kills, a seed. Each round is a forked
child: it begins, writes, enqueues and commits, over and over, and is killed at a random moment.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time

from laneway import App
from transactbench import POSTGRES, SQLITE, Seat, play

_, URL, ADDRESS, DRIVER, KILLS, SEED = sys.argv
chance = random.Random(SEED)  # noqa: S311 - a kill is no secret

app = App(URL, enqueue_timeout=30)


@app.task(name="ship", lane="lane")
def ship(order: int, lane: int) -> None: ...


@app.task(name="once", unique=True)
def once(order: int) -> None: ...


@app.collector(name="save")
def save(lanes: dict[str, list[int]]) -> None: ...


async def work(seat: Seat, first: int, ready: int) -> None:
    await seat.open()
    order = first
    while True:
        await seat.begin()
        async with seat.block(app):
            await seat.write(order)
            await seat.enqueue(ship, order, order % 7)
            if order % 3 == 0:
                await seat.enqueue(once, order)
            if order % 5 == 0:
                await seat.enqueue(save, str(order % 2), order)
        if order % 4 == 0:
            await seat.rollback()
        else:
            await seat.commit()
        if order == first:
            os.write(ready, b"r")
        order += 1


for kill in range(int(KILLS)):
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        chosen = (POSTGRES if "://" in ADDRESS else SQLITE)[DRIVER](ADDRESS)
        play(chosen, work(chosen, kill * 100_000 + 1, write))
    os.close(write)
    if not os.read(read, 1):
        sys.exit("a child ended by itself")
    os.close(read)
    time.sleep(chance.random() * 0.05)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
