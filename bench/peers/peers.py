"""Laneway beside Celery, RQ, Dramatiq and Huey on one Redis server: enqueueing, and no-op jobs. README.md says how to run it.

Each peer has the settings that make it fastest while it still loses nothing: no results, no log, and nothing looked up or checked
that this work does not need.
"""

from __future__ import annotations

import importlib
import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from harness import Table, alternate, folder, rate
from laneway import App, Worker
from raw_redis import Server, served

NUMBER = 2_000
JOBS = 10_000
SLOTS = 10

#: How many messages Dramatiq's worker fetches ahead. It fetches twice as many as it has threads if nothing is set.
PREFETCH = 1_000
#: A program for Dramatiq's worker: the first and the last job say when they ran.
DRAMATIQ = """
import os, time, dramatiq
from dramatiq.brokers.redis import RedisBroker
dramatiq.set_broker(RedisBroker(url=os.environ["REDIS_URL"], middleware=[dramatiq.middleware.Retries()]))

@dramatiq.actor
def plain(number, text):
    if number in (0, int(os.environ["JOBS"]) - 1):
        with open("ran", "a") as file:
            file.write(f"{time.time()}\\n")
"""


def plain(number: int, text: str) -> None:
    """Do nothing."""


def database(server: Server, number: int) -> str:
    """Return the URL of one of the server's databases: each peer has its own."""
    return server.url.removesuffix("0") + str(number)


def enqueuers(server: Server) -> dict[str, Callable[[int], object]]:
    """Return how each of them enqueues one job."""
    client = importlib.import_module("redis").Redis.from_url
    app = App(database(server, 0))
    task = app.task(name="plain")(plain)

    celery = importlib.import_module("celery").Celery(broker=database(server, 1))
    celery.conf.update(task_ignore_result=True, task_publish_retry=False)
    celery_task: Any = celery.task(name="plain", typing=False)(plain)

    queue = importlib.import_module("rq").Queue(connection=client(database(server, 2)))

    dramatiq: Any = importlib.import_module("dramatiq")
    retries = dramatiq.middleware.Retries()  # the others cost time: limits of age and time, callbacks, pipelines
    broker = importlib.import_module("dramatiq.brokers.redis").RedisBroker(url=database(server, 3), middleware=[retries])
    actor = dramatiq.actor(plain, broker=broker)

    huey = importlib.import_module("huey").RedisHuey("bench", url=database(server, 4), results=False)
    huey_task = huey.task()(plain)
    return {
        "Laneway, task.enqueue": lambda n: task.enqueue(n, "welcome"),
        "Celery, delay": lambda n: celery_task.delay(n, "welcome"),
        "RQ, enqueue": lambda n: queue.enqueue("peers.plain", n, "welcome", description="plain", result_ttl=0),
        "Dramatiq, send": lambda n: actor.send(n, "welcome"),
        "Huey, call": lambda n: huey_task(n, "welcome"),
    }


def enqueueing(server: Server) -> None:
    """One by one."""
    rows = enqueuers(server)

    def each(enqueue: Callable[[int], object]) -> Callable[[], float]:
        return lambda: rate(NUMBER, lambda: [enqueue(n) for n in range(NUMBER)])

    figures = alternate(*map(each, rows.values()))
    best = max(figures[1:])
    table = Table("enqueue on Redis one by one, jobs per second", "", "jobs/s", "of the best")
    for name, figure in zip(rows, figures, strict=True):
        table.row(name, figure, figure / best)


def working(server: Server, where: Path) -> None:
    """No-op jobs through one process with ten threads."""
    app = App(database(server, 5))
    task = app.task(name="plain")(plain)

    def ours() -> float:
        task.enqueue_many((n, "welcome") for n in range(JOBS))
        return rate(JOBS, lambda: Worker(app, slots=SLOTS).run(burst=True))

    settings = {"REDIS_URL": database(server, 6), "JOBS": str(JOBS), "dramatiq_queue_prefetch": str(PREFETCH)}
    environment = {**os.environ, **settings, "PYTHONPATH": str(where)}
    (where / "peer.py").write_text(DRAMATIQ)

    def theirs() -> float:
        ran = where / "ran"
        ran.write_text("")
        filling = "import os, peer\nfor n in range(int(os.environ['JOBS'])): peer.plain.send(n, 'welcome')"
        subprocess.run([sys.executable, "-c", filling], env=environment, cwd=where, check=True)
        command = [sys.executable, "-m", "dramatiq", "peer", "-p", "1", "-t", str(SLOTS), "--skip-logging"]
        with (where / "peer.log").open("w") as log:
            process = subprocess.Popen(command, env=environment, cwd=where, stdout=log, stderr=log)
            try:
                while len(ran.read_text().splitlines()) < 2:
                    assert process.poll() is None, (where / "peer.log").read_text()
                    time.sleep(0.05)
            finally:
                process.terminate()
                process.wait(30)
        first, last = map(float, ran.read_text().split())
        return JOBS / (last - first)

    figures = alternate(ours, theirs)
    table = Table("no-op jobs on Redis, one process with ten slots, per second", "", "jobs/s", "of Dramatiq")
    for name, figure in zip(("Laneway", "Dramatiq"), figures, strict=True):
        table.row(name, figure, figure / figures[1])


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    with folder() as place, served(place) as own:
        enqueueing(own)
        working(own, place)
