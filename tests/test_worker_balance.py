"""Workers that deal their slots to queues: by weight, in order, by a user's rule; and tasks that compute."""

from __future__ import annotations

import logging
import os
import re
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from conftest import SOAK
from laneway import App, Worker
from laneway.errors import BadOption, ConfigError
from laneway.present.snapshot import Snapshot
from laneway.worker.balance import even
from laneway.worker.shares import kinds
from laneway.worker.shares.kinds import Kinds
from workbench import DEADLINE, burst, until, wait, working


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]


# Shares are of the slots' time, and one long run that the machine is to blame for counts as less: on a busy machine that shows.
# The simulations of test_balance are within 5 %. Of jobs of microseconds only their number is known, and what else the machine
# does just then is measured with it: that row is for a quiet machine.
@pytest.mark.every_store
@pytest.mark.parametrize(
    ("nap", "within"), [pytest.param(0.0, 0.5, marks=pytest.mark.skipif(not SOAK, reason="only with make soak")), (0.01, 0.25)]
)
def test_ten_busy_queues_of_fifty_share_by_their_weights(app: App, nap: float, within: float) -> None:
    weights = {f"queue-{n}": float(1 + n % 5) for n in range(10)}
    number = 5_000 if nap else 40_000
    done: Counter[str] = Counter()
    spent: dict[str, float] = defaultdict(float)
    enough = threading.Event()

    @app.task(name="work")
    def work(queue: str) -> None:
        begun = time.perf_counter()
        if nap:
            time.sleep(nap)
        if not enough.is_set():
            done[queue] += 1
            spent[queue] += time.perf_counter() - begun if nap else 1
            if done.total() == number:
                enough.set()

    for n in range(40):
        work.using(queue=f"idle-{n}").enqueue("idle")
    for queue, weight in weights.items():
        work.using(queue=queue).enqueue_many([(queue,)] * round(number * weight / 30 * 1.3))
    queues = {**dict.fromkeys((f"idle-{n}" for n in range(40)), 1.0), **weights}
    with working(app, 20, queues=queues):
        wait(enough)

    all_of_them = sum(spent[queue] for queue in weights)
    shares = {queue: spent[queue] / all_of_them * 30 for queue in weights}
    assert shares == {queue: pytest.approx(weight, rel=within) for queue, weight in weights.items()}


@pytest.mark.every_store
def test_strict_order_serves_a_queue_only_when_those_before_it_are_empty(app: App) -> None:
    ran: list[str] = []

    @app.task(name="work")
    def work(queue: str) -> None:
        ran.append(queue)

    for queue in ("low", "default", "critical"):
        work.using(queue=queue).enqueue_many([(queue,)] * 600)
    burst(app, 1, queues=["critical", "default", "low"], balance="strict")

    # Claims are made ahead, while it is not known yet what waits: some dozens, if the store's first answer comes late, and more
    # than a hundred on a machine that is very busy. If the queues shared evenly it were two hundred of each.
    first = Counter(ran[:600])
    assert first["critical"] >= 350
    assert set(ran[1200:]) <= {"low", "default"}
    assert Counter(ran) == {"critical": 600, "default": 600, "low": 600}


def test_a_users_policy_is_asked_and_followed(app: App) -> None:
    asked: list[tuple[int, dict[str, int]]] = []
    most: Counter[str] = Counter()
    running: Counter[str] = Counter()
    guard = threading.Lock()

    @app.task(name="work")
    def work(queue: str) -> None:
        with guard:
            running[queue] += 1
            most[queue] = max(most[queue], running[queue])
        time.sleep(0.02)
        with guard:
            running[queue] -= 1

    def mine(slots: int, loads: Mapping[str, int]) -> dict[str, int]:
        asked.append((slots, dict(loads)))
        return {queue: slots - 2 if queue == "big" else 1 for queue in loads if queue in ("big", "small")}

    for queue in ("big", "small"):
        work.using(queue=queue).enqueue_many([(queue,)] * 200)
    with working(app, 10, balance=mine):
        until(lambda: app.stats.totals()["processed"] > 100)
        small = most["small"]

    assert asked
    assert all(slots == 10 for slots, _ in asked)
    assert small < most["big"]


def test_a_policy_that_fails_is_told_of_once_and_jobs_run_all_the_same(app: App, caplog: pytest.LogCaptureFixture) -> None:
    done: list[str] = []

    @app.task(name="work")
    def work(queue: str) -> None:
        done.append(queue)

    def broken(slots: int, loads: Mapping[str, int]) -> dict[str, int]:
        assert loads, "who asks has work"
        raise ValueError(f"no idea what to do with {loads}")

    for queue in ("a", "b"):
        work.using(queue=queue).enqueue_many([(queue,)] * 50)
    burst(app, 5, balance=broken)

    assert Counter(done) == {"a": 50, "b": 50}
    (said,) = warned(caplog)
    assert re.fullmatch(r"the balance policy broken failed \(ValueError: no idea .*\)\. Slots are dealt evenly instead", said)


def test_who_lends_its_share_gets_it_back(app: App) -> None:
    running: Counter[str] = Counter()
    go = threading.Event()
    guard = threading.Lock()

    @app.task(name="work")
    def work(queue: str) -> None:
        with guard:
            running[queue] += 1
        if queue == "late":
            go.set()
        time.sleep(0.01)
        with guard:
            running[queue] -= 1

    work.using(queue="early").enqueue_many([("early",)] * 2000)
    with working(app, 8, balance="even"):
        until(lambda: running["early"] == 8, "the whole worker lent")
        work.using(queue="late").enqueue_many([("late",)] * 400)
        wait(go)
        until(lambda: running["late"] >= 4, "its share back")


def test_a_task_that_computes_has_one_run_at_a_time_and_others_go_on(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    # Where others have nearly all of the cores, a worker takes a job that computes for one that waits, and starts a second one.
    monkeypatch.setattr("laneway.worker.shares.fair.IDLE", 0.0)
    at_once: Counter[str] = Counter()
    most: Counter[str] = Counter()
    guard = threading.Lock()

    def inside(name: str, action: Callable[[], Any]) -> None:
        with guard:
            at_once[name] += 1
            most[name] = max(most[name], at_once[name])
        action()
        with guard:
            at_once[name] -= 1

    def compute() -> None:
        end = time.thread_time() + 0.02
        while time.thread_time() < end:
            pass

    @app.task(kind="cpu", queue="cpu")
    def computes() -> None:
        inside("computes", compute)

    @app.task(kind="io", queue="io")
    def waits() -> None:
        inside("waits", lambda: time.sleep(0.02))

    computes.enqueue_many([()] * 30)
    waits.enqueue_many([()] * 200)
    burst(app, 10)

    assert most["waits"] >= 5
    assert most["computes"] == 1
    assert app.stats.totals()["processed"] == 230


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"balance": "fair"}, "use one of even, adaptive, strict, or a function"),
        ({"balance": "strict"}, "name them, such as -q critical,default"),
        ({"queues": {"a": 2}, "balance": "even"}, "weights are a way to balance"),
        ({"queues": {"a": 0}}, "the weight of 'a' is 0: use a number greater than 0"),
        ({"queues": {"a": float("nan")}}, "use a number greater than 0"),
    ],
)
def test_what_cannot_be_meant_is_said_at_once(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Worker(App("sqlite://"), **options)


def test_a_kind_is_cpu_or_io() -> None:
    app = App("sqlite://")
    wrong: Any = {"kind": "disk"}
    with pytest.raises(BadOption, match='use "cpu" for a task that computes'):
        app.task(**wrong)(lambda: None)


def test_even_is_a_policy_like_any_other(app: App) -> None:
    ran: list[int] = []

    @app.task
    def work(n: int) -> None:
        ran.append(n)

    work.enqueue_many((n,) for n in range(20))
    burst(app, 3, balance=even)
    assert sorted(ran) == list(range(20))


@pytest.mark.every_store
def test_what_was_learned_is_kept_for_the_next_worker_and_shown(app: App) -> None:
    @app.task(name="computes", queue="first")
    def computes() -> None:
        end = time.thread_time() + 0.02
        while time.thread_time() < end:
            pass

    @app.task(name="waits", queue="second")
    def waits() -> None:
        time.sleep(0.05)

    with working(app, 4):
        deadline = time.monotonic() + DEADLINE
        while Snapshot.of(app, 1).learned != "computes computes; waits waits":  # with little of a core it may be wrong at first
            assert time.monotonic() < deadline, app.stats.learned()
            computes.enqueue_many([()] * 10)
            waits.enqueue_many([()] * 10)
            until(lambda: not sum(app.inspect.counts().values()))
    next_one = Kinds(app.declared)
    next_one.begin_with(app.stats.learned())

    assert Snapshot.of(app, 1).learned == "computes computes; waits waits"
    assert (next_one.computing, next_one.cpu, next_one.io) == ({"computes"}, {"first"}, {"second"})


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="only Linux tells how long threads waited for a core")
def test_a_thread_that_ends_does_not_hide_how_busy_the_machine_is(monkeypatch: pytest.MonkeyPatch) -> None:
    as_it_is = os.listdir
    whole = kinds._schedule()
    monkeypatch.setattr(os, "listdir", lambda path: ["0", *as_it_is(path)])  # that one has ended meanwhile
    threads = kinds._schedule()
    assert threads.keys() == whole.keys()
    assert str(threading.main_thread().native_id) in threads


def test_short_jobs_and_longer_ones_in_turn_do_not_go_back_and_forth(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    given_back: list[int] = []
    give_back = app.store.give_back

    def counted(worker: str, keep: Any = ()) -> list[str]:
        ids = give_back(worker, keep)
        given_back.append(len(ids))
        return ids

    monkeypatch.setattr(app.store, "give_back", counted)

    @app.task
    def short() -> None: ...

    @app.task
    def longer() -> None:
        end = time.perf_counter() + 0.002
        while time.perf_counter() < end:
            pass

    app.enqueue_many(call for _ in range(400) for call in (longer.bind(), short.bind()))
    begun = time.monotonic()
    burst(app, 4)

    assert len(given_back) <= 3 + (time.monotonic() - begun)
    assert app.stats.totals()["processed"] == 800
