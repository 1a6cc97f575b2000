"""A live system is moved: producers and workers go on while its store is closed, and the copier is killed on its way."""

from __future__ import annotations

import json
import logging
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import postgresbench
import redisbench
from clidesk import environment
from conftest import PATIENCE, often
from laneway import App, Retry
from laneway.errors import StoreMoved
from laneway.store.transfer import transfer_of
from workbench import DEADLINE, burst, until, working

PAIRS = [("sqlite", "redis"), ("redis", "sqlite"), ("sqlite", "postgres"), ("postgres", "redis")]
#: Producers and workers know the source alone.
each_source = pytest.mark.parametrize("urls", [*PAIRS[:2], *PAIRS[3:]], ids="-to-".join, indirect=True)
#: The schema of these tests: in the common one the clock stands still.
SCHEMA = "live"


def address(kind: str, role: str, folder: Path) -> str:
    if kind == "sqlite":
        return f"sqlite:///{folder / role}.db"
    if kind == "postgres":
        return f"{postgresbench.server().url}?schema={SCHEMA}&timeout={PATIENCE}"
    return redisbench.server().url.removesuffix("/0") + ("/1" if role == "old" else "/2") + f"?timeout={PATIENCE}"


@pytest.fixture(params=PAIRS, ids="-to-".join)
def urls(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    source, target = request.param
    if "redis" in request.param:
        redisbench.emptied()
    if "postgres" in request.param:
        postgresbench.server().drop(SCHEMA)
    return address(source, "old", tmp_path), address(target, "new", tmp_path)


class Shop:
    """An app on a store, and what ran in it."""

    def __init__(self, url: str, ran: list[tuple[str, int]]) -> None:
        self.app = App(url, enqueue_timeout=PATIENCE)
        self.accepted: list[tuple[str, int]] = []
        self.refused: list[StoreMoved] = []
        self._mutex = threading.Lock()

        @self.app.task(lane="lane", retry=Retry(times=2, backoff=0))
        def work(lane: str, n: int) -> None:
            ran.append((lane, n))

        @self.app.collector(name="sync")
        def sync(lanes: dict[str, list[int]]) -> None:
            ran.extend((lane, n) for lane, numbers in lanes.items() for n in numbers)

        self.work: Any = work
        self.sync: Any = sync

    def produce(self, lane: str) -> None:
        """Enqueue into a lane until the store was moved."""
        enqueue: Any = self.sync.enqueue if lane == "sync" else self.work.enqueue
        for n in range(1_000_000):
            try:
                enqueue(lane, n)
            except StoreMoved as error:
                self.refused.append(error)
                return
            with self._mutex:
                self.accepted.append((lane, n))
            time.sleep(0.001)


def copier(*urls: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "laneway", "store", "copy", *urls, "--timeout", str(DEADLINE), "--json"]
    return subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finished(process: subprocess.Popen[str]) -> dict[str, Any]:
    out, err = process.communicate(timeout=DEADLINE)
    assert process.returncode == 0, err
    found: dict[str, Any] = json.loads(out)
    return found


@pytest.fixture
def shops(urls: tuple[str, str]) -> Iterator[tuple[Shop, Shop, list[tuple[str, int]]]]:
    ran: list[tuple[str, int]] = []
    old, new = Shop(urls[0], ran), Shop(urls[1], ran)
    yield old, new, ran
    old.app.close()
    new.app.close()


def in_order(ran: list[tuple[str, int]]) -> dict[str, list[int]]:
    lanes: dict[str, list[int]] = {}
    for lane, n in ran:
        lanes.setdefault(lane, []).append(n)
    return lanes


@each_source
def test_producers_and_workers_go_on_and_each_job_runs_once_and_in_order(
    urls: tuple[str, str], shops: tuple[Shop, Shop, list[tuple[str, int]]], caplog: pytest.LogCaptureFixture
) -> None:
    """What was accepted before the flag runs, in the old store or in the new one; who came later heard of the new address."""
    old, new, ran = shops
    caplog.set_level(logging.WARNING, "laneway")
    lanes = [f"lane{n}" for n in range(4)]
    producers = [threading.Thread(target=old.produce, args=(lane,), daemon=True) for lane in (*lanes, "sync")]
    with working(old.app, 3):
        for thread in producers:
            thread.start()
        until(lambda: len(ran) > 100, "jobs run")
        document = finished(copier(*urls))
        for thread in producers:
            thread.join(DEADLINE)
        before = len(ran)
        until(lambda: "claims nothing more" in caplog.text, "the worker says that it claims nothing more")
    assert not any(thread.is_alive() for thread in producers)
    assert len(old.refused) == len(producers)
    assert {error.address for error in old.refused} == {document["to"]}

    burst(new.app)

    assert before > 0
    assert sorted(ran) == sorted(old.accepted)
    for lane, numbers in in_order(ran).items():
        assert numbers == sorted(numbers), lane
    assert sum("claims nothing more" in record.getMessage() for record in caplog.records) == 1


def test_a_copier_that_is_killed_again_and_again_copies_everything_once(
    urls: tuple[str, str], shops: tuple[Shop, Shop, list[tuple[str, int]]]
) -> None:
    old, new, ran = shops
    number = often(1_500, 30_000)
    calls = [(f"lane{n % 60}", n) for n in range(number)]
    old.work.enqueue_many(calls)
    old.sync.enqueue_many([("sync", n) for n in range(number, number + 1000)])
    target, kills, chance = transfer_of(new.app.store), 0, random.Random(5)  # noqa: S311 - no secret
    known: dict[str, str] = {}

    while kills < often(2, 10):
        with copier(*urls) as process:
            until(lambda: process.poll() is not None or target.copied() != known, "the copier copies")  # noqa: B023
            known = target.copied()
            time.sleep(chance.random() * 0.01)
            if process.poll() is not None:
                break
            os.kill(process.pid, signal.SIGKILL)
        kills += 1
    finished(copier(*urls))

    assert kills >= 2
    burst(new.app)
    lanes = in_order(ran)
    assert lanes.pop("sync") == list(range(number, number + 1000))
    assert sum(map(len, lanes.values())) == number
    for lane, numbers in lanes.items():
        assert numbers == [n for its, n in calls if its == lane]


@each_source
def test_a_store_that_is_reopened_is_worked_on_again(
    urls: tuple[str, str], shops: tuple[Shop, Shop, list[tuple[str, int]]], caplog: pytest.LogCaptureFixture
) -> None:
    old, _, ran = shops
    caplog.set_level(logging.WARNING, "laneway")
    old.work.enqueue("a", 1)
    with working(old.app, 2):
        until(lambda: ran == [("a", 1)])
        finished(copier(*urls))
        until(lambda: "claims nothing more" in caplog.text)
        with pytest.raises(StoreMoved, match="laneway store reopen"):
            old.work.enqueue("a", 2)
        reopen = [sys.executable, "-m", "laneway", "store", "reopen", urls[0], "--yes"]
        subprocess.run(reopen, env=environment(), check=True, timeout=DEADLINE)
        old.work.enqueue("a", 3)
        until(lambda: ran == [("a", 1), ("a", 3)])
