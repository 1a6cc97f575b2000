"""The timetable with schedules that are kept in the store, on every store: set, replaced and dropped while workers run."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from conftest import Bench, Clock, often
from laneway import App
from laneway.core.cron import Schedule
from laneway.core.instant import SECOND
from laneway.desk.task import Task
from laneway.errors import StoreUnavailable
from laneway.store.contract import Occurrence
from laneway.worker.duties.timetable import Timetable
from test_schedules import HOSTILE
from workbench import until

EVERY = timedelta(seconds=10)


class Shop:
    """An app on a store whose clock is ours."""

    def __init__(self, bench: Bench) -> None:
        self.app = App("sqlite://")
        self.app.swap_stores((bench.store, bench.inspect))
        self.clock = bench.clock

        @self.app.task(name="report")
        def report(region: str = "") -> None: ...

        self.report: Task[..., Any, Any] = report

    def set(self, name: str, *args: str, **options: Any) -> None:
        self.app.inspect.set_schedule(name, self.report.bind(*args), EVERY, **options)

    def enqueued(self) -> Counter[str]:
        return Counter("".join(job.args or []) for job in self.app.inspect.jobs(limit=10_000))


class Worker:
    """A worker's timetable, turned by hand."""

    def __init__(self, app: App, clock: Clock) -> None:
        self.table = Timetable(app)
        self.clock = clock
        self.look()

    def look(self) -> None:
        self.table._ask()
        self.turn()

    def turn(self) -> None:
        self.table._fire_all(self.clock())


@pytest.fixture
def shop(bench: Bench) -> Shop:
    bench.clock.now = 1_000_003 * SECOND
    return Shop(bench)


def test_it_is_seen_by_workers_that_run_and_fires_once(shop: Shop) -> None:
    workers = [Worker(shop.app, shop.clock) for _ in range(3)]
    shop.set("eu", "eu")
    shop.set("us", "us")
    for worker in workers:
        worker.look()
    for _ in range(4):
        shop.clock.advance(10)
        for worker in workers:
            worker.turn()
    assert shop.enqueued() == {"eu": 4, "us": 4}


def test_one_that_is_replaced_fires_no_more_though_nobody_has_looked(shop: Shop) -> None:
    shop.set("r", "old")
    worker, other = Worker(shop.app, shop.clock), Worker(shop.app, shop.clock)
    shop.clock.advance(10)
    worker.turn()
    shop.set("r", "new")
    shop.clock.advance(10)
    worker.turn()  # it knows the old one
    assert shop.enqueued() == {"old": 1}
    other.look()
    assert shop.enqueued() == {"old": 1, "new": 1}
    worker.look()
    shop.clock.advance(10)
    for one in (worker, other):
        one.turn()
    assert shop.enqueued() == {"old": 1, "new": 2}


def test_one_that_is_dropped_fires_no_more_though_nobody_has_looked(shop: Shop) -> None:
    shop.set("r", "us")
    worker = Worker(shop.app, shop.clock)
    shop.app.inspect.drop_schedule("r")
    shop.clock.advance(10)
    worker.turn()
    worker.look()
    assert shop.enqueued() == {}
    assert shop.app.store.schedules().last == {}


@pytest.mark.parametrize("back", [0, 3600])
@pytest.mark.parametrize("fired", [True, False])
def test_a_worker_that_was_about_to_fire_does_not_once_it_was_dropped(
    shop: Shop, fired: bool, back: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Redis looks whether a schedule is kept before it pushes: the drop comes between the two."""
    shop.set("r", "us")
    worker, other = Worker(shop.app, shop.clock), Worker(shop.app, shop.clock)
    shop.clock.advance(10)
    worker.turn()
    shop.clock.advance(10)
    shop.report.enqueue("seen")  # the store has seen this time
    now = shop.clock()
    shop.clock.advance(-back)
    looks = hasattr(shop.app.store, "_fires")
    step = "_fires" if looks else "push"
    whole = getattr(type(shop.app.store), step)

    def interrupted(store: Any, *args: Any) -> Any:
        monkeypatch.undo()
        found = whole(store, *args) if looks else None
        if fired:
            other.table._fire_all(now)
        shop.app.inspect.drop_schedule("r")
        return found if looks else whole(store, *args)

    monkeypatch.setattr(type(shop.app.store), step, interrupted)
    worker.table._fire_all(now)
    assert shop.enqueued() == {"us": 2 if fired else 1, "seen": 1}


def test_one_that_was_dropped_and_set_again_begins_anew(shop: Shop) -> None:
    shop.set("r", "us", by="")
    worker = Worker(shop.app, shop.clock)
    shop.clock.advance(5)
    shop.app.inspect.drop_schedule("r")
    shop.clock.advance(30)
    shop.set("r", "us", by="")
    worker.look()
    assert shop.enqueued() == {}
    shop.clock.advance(10)
    worker.turn()
    assert shop.enqueued() == {"us": 1}


@pytest.mark.parametrize(("catch_up", "number"), [("one", 1), ("all", 3), ("none", 0)])
def test_what_passed_before_a_worker_saw_it_is_made_up_for_as_it_says(shop: Shop, catch_up: str, number: int) -> None:
    """A worker that looks late, or one that comes after all others were killed between two occurrences."""
    worker = Worker(shop.app, shop.clock)
    shop.set("r", "us", catch_up=catch_up)
    shop.clock.advance(30)
    worker.look()
    assert shop.enqueued()["us"] == number
    del worker
    shop.clock.advance(30)
    Worker(shop.app, shop.clock)
    assert shop.enqueued()["us"] == 2 * number


def test_a_paused_one_lets_its_occurrences_pass(shop: Shop) -> None:
    shop.set("r", "us")
    worker = Worker(shop.app, shop.clock)
    shop.app.inspect.pause_schedule("r")
    shop.clock.advance(20)
    worker.turn()
    shop.app.inspect.resume_schedule("r")
    shop.clock.advance(10)
    worker.turn()
    assert shop.enqueued() == {"us": 1}


def test_a_clock_that_is_set_back_fires_nothing_twice(shop: Shop) -> None:
    shop.set("r", "us")
    worker = Worker(shop.app, shop.clock)
    shop.clock.advance(10)
    worker.turn()
    shop.clock.advance(-60)
    worker.look()
    assert shop.enqueued() == {"us": 1}
    for _ in range(6):
        shop.clock.advance(10)
        worker.turn()
    assert shop.enqueued() == {"us": 1}
    shop.clock.advance(10)
    worker.turn()
    assert shop.enqueued() == {"us": 2}


def test_a_worker_that_does_not_know_the_task_says_so_once_and_leaves_it(
    shop: Shop, bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(7):
        shop.set(f"r{number}", "us")
    caplog.set_level(logging.INFO, "laneway")
    stranger = App("sqlite://")
    stranger.swap_stores((bench.store, bench.inspect))
    worker = Worker(stranger, shop.clock)
    for _ in range(3):
        shop.clock.advance(10)
        worker.look()
    assert shop.enqueued() == {}
    [line] = [record.getMessage() for record in caplog.records if "schedules" in record.getMessage()]
    assert "does not know the tasks of 7 schedules in the store; they wait for one that does: " in line
    assert line.endswith(", …")
    Worker(shop.app, shop.clock)
    assert shop.enqueued() == {"us": 7}  # the last occurrence of each


def test_one_that_cannot_be_read_is_reported_once_and_others_fire(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    shop.app.store_inspect.set_schedule("evil", b'{"task": "report", "cron": "x"}')
    shop.app.store_inspect.set_schedule("misfit", b'{"task": "report", "body": "[[5],{}]", "every": 10000000}')
    shop.set("good", "us")
    worker = Worker(shop.app, shop.clock)
    for _ in range(3):
        shop.clock.advance(10)
        worker.look()
    assert shop.enqueued() == {"us": 3}
    lines = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert len([line for line in lines if '"evil" in the store does not fire here: the entry cannot be read' in line]) == 1
    assert len([line for line in lines if '"misfit" in the store does not fire here: argument "region"' in line]) == 1
    shop.set("evil", "eu")
    worker.look()
    shop.clock.advance(10)
    worker.turn()
    assert shop.enqueued() == {"us": 4, "eu": 1}


def test_whatever_is_in_the_store_others_fire(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    for number, raw in enumerate(HOSTILE):
        shop.app.store_inspect.set_schedule(f"evil-{number}", raw)
    shop.set("good", "us")
    worker = Worker(shop.app, shop.clock)
    for _ in range(2):
        shop.clock.advance(10)
        worker.look()
    assert shop.enqueued() == {"us": 2}
    assert len([record for record in caplog.records if "cannot be read" in record.getMessage()]) == len(HOSTILE)


def test_one_that_the_app_declares_counts(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    shop.set("r", "kept")
    shop.app.schedule(shop.report.bind("declared"), EVERY, name="r")
    worker = Worker(shop.app, shop.clock)
    worker.look()
    shop.clock.advance(10)
    worker.turn()
    assert shop.enqueued() == {"declared": 1}
    assert len([record for record in caplog.records if "drop this one" in record.getMessage()]) == 1


def test_a_schedule_that_raises_does_not_keep_others_from_firing(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    for name in ("a", "b", "c"):
        shop.set(name, name)

    @shop.app.client_middleware
    def no_b(draft: Any) -> Iterator[None]:
        if [*draft.args] == ["b"]:
            raise ZeroDivisionError
        yield

    worker = Worker(shop.app, shop.clock)
    for _ in range(2):
        shop.clock.advance(10)
        worker.turn()
    assert shop.enqueued() == {"a": 2, "c": 2}
    assert [record.getMessage() for record in caplog.records if record.exc_info] == [
        'the schedule "b" could not fire; other schedules go on'
    ] * 2


def test_an_outage_in_the_middle_of_a_turn_leaves_nothing_out(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b", "c"):
        shop.set(name, name)
    worker = Worker(shop.app, shop.clock)
    store, push = shop.app.store, shop.app.store.push
    pushed = 0

    def away(*given: Any) -> Any:
        nonlocal pushed
        pushed += 1
        if pushed == 2:
            raise StoreUnavailable
        return push(*given)

    monkeypatch.setattr(store, "push", away)
    shop.clock.advance(10)
    with pytest.raises(StoreUnavailable):
        worker.turn()
    worker.turn()
    assert shop.enqueued() == {"a": 1, "b": 1, "c": 1}


def test_what_is_known_of_last_occurrences_may_be_anything(shop: Shop, bench: Bench) -> None:
    for name, at in (("past", -(10**17)), ("future", 10**17)):
        shop.set(name, name)
        bench.store.push([], Occurrence(name, at, bench.store.schedules().kept[name]))
    shop.set("r", "us")
    worker = Worker(shop.app, shop.clock)
    shop.clock.advance(10)
    worker.look()
    assert shop.enqueued()["us"] == 1


@pytest.mark.soak
def test_many_schedules_fire_once_each_and_cost_little_when_none_is_due(
    shop: Shop, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A thousand on one store: others see fewer, since to set so many one by one takes them seconds.
    many = 1000 if request.node.callspec.params["bench"] == "sqlite-memory" else often(200, 1000)
    for number in range(many):
        shop.app.inspect.set_schedule(f"r{number}", shop.report.bind(str(number)), "0 3 * * *", timezone="Europe/Paris")
    workers = [Worker(shop.app, shop.clock) for _ in range(2)]
    asked: list[int] = []
    occurrences = Schedule.occurrences

    def noted(self: Schedule, after: int) -> Iterator[int]:
        asked.append(after)
        return occurrences(self, after)

    with monkeypatch.context() as patched:
        patched.setattr(Schedule, "occurrences", noted)
        for _ in range(20):
            for worker in workers:
                worker.turn()
                worker.table._until_next(shop.clock())
        assert asked == [], "the next occurrence of each is known"
        workers[0].table._rows["r0"].advance(shop.clock() + 1)
        assert asked == [shop.clock() + 1], "this would be seen"
    shop.clock.advance(24 * 3600)
    threads = [threading.Thread(target=worker.look) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert shop.enqueued() == {str(number): 1 for number in range(many)}


def test_set_replaced_and_dropped_while_two_workers_fire(shop: Shop) -> None:
    """Whatever is fired is fired once for an occurrence, and nothing after the last drop."""
    workers = [Worker(shop.app, shop.clock) for _ in range(2)]
    over = threading.Event()
    broken: list[BaseException] = []

    def fire(worker: Worker) -> None:
        try:
            while not over.is_set():
                worker.look()
        except BaseException as error:  # noqa: BLE001 - raised below
            broken.append(error)

    threads = [threading.Thread(target=fire, args=(worker,)) for worker in workers]
    for thread in threads:
        thread.start()
    rounds = 20
    for number in range(rounds):
        shop.set("r", f"{number}-")
        shop.clock.advance(10)
        until(lambda n=number: shop.enqueued()[f"{n}-"] == 1, f"occurrence {number}")  # type: ignore[misc]
        if number % 3 == 0:
            shop.app.inspect.drop_schedule("r")
    shop.app.inspect.drop_schedule("r")
    shop.clock.advance(100)
    over.set()
    for thread in threads:
        thread.join()
    assert not broken
    for worker in workers:
        worker.look()
    assert shop.enqueued() == {f"{number}-": 1 for number in range(rounds)}
