"""The timetable: every occurrence fires once, and missed ones as the task says."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from conftest import Clock, often
from laneway import App
from laneway.core.instant import SECOND, as_datetime
from laneway.desk.schedules import Scheduled
from laneway.errors import NotFound
from laneway.store.contract import WorkerInfo
from laneway.store.inspection import JobInfo
from laneway.store.sqlite import SQLiteInspect, SQLiteStore
from laneway.worker.duties import timetable
from laneway.worker.duties.timetable import Timetable
from workbench import DEADLINE, until, url, working

EVERY = 10  # seconds between slots


@pytest.fixture
def clock() -> Clock:
    return Clock(1_000_003 * SECOND)


@pytest.fixture
def shop(clock: Clock) -> Iterator[App]:
    """An app with a schedule for each policy, on a store whose clock is ours."""
    made = App("sqlite://")
    store = SQLiteStore(clock=clock)
    made.swap_stores((store, SQLiteInspect(store)))
    for policy in ("one", "all", "none"):

        @made.task(name=policy, schedule=timedelta(seconds=EVERY), catch_up=policy)
        def work() -> None: ...

    yield made
    made.close()


class Worker:
    """A worker's timetable, turned by hand."""

    def __init__(self, app: App, clock: Clock) -> None:
        self._table = Timetable(app)
        self._clock = clock
        self._table._ask()
        self.turn()

    def turn(self) -> None:
        self._table._fire_all(self._clock())


def enqueued(app: App) -> dict[str, int]:
    found = Counter(job.task for job in app.inspect.jobs(limit=1000))
    return {name: found[name] for name in ("one", "all", "none")}


def test_a_schedule_begins_when_it_is_first_seen(shop: App, clock: Clock) -> None:
    Worker(shop, clock)
    assert enqueued(shop) == {"one": 0, "all": 0, "none": 0}


def test_a_slot_fires_once_however_many_workers_there_are(shop: App, clock: Clock) -> None:
    workers = [Worker(shop, clock) for _ in range(3)]
    for _ in range(4):
        clock.advance(EVERY)
        for worker in workers:
            worker.turn()
    assert enqueued(shop) == {"one": 4, "all": 4, "none": 4}


def test_a_worker_that_is_late_fires_what_came_meanwhile(shop: App, clock: Clock) -> None:
    worker = Worker(shop, clock)
    clock.advance(3 * EVERY)
    worker.turn()
    assert enqueued(shop) == {"one": 3, "all": 3, "none": 3}


def test_slots_that_passed_while_nobody_was_there_are_made_up_for_as_the_task_says(shop: App, clock: Clock) -> None:
    Worker(shop, clock)
    clock.advance(5 * EVERY)
    Worker(shop, clock)
    Worker(shop, clock)
    assert enqueued(shop) == {"one": 1, "all": 5, "none": 0}


def test_a_machine_that_slept_is_as_good_as_none(shop: App, clock: Clock) -> None:
    worker = Worker(shop, clock)
    clock.advance(20 * EVERY)
    worker.turn()
    assert enqueued(shop) == {"one": 1, "all": 20, "none": 0}


def test_a_paused_schedule_lets_its_slots_pass(shop: App, clock: Clock) -> None:
    worker = Worker(shop, clock)
    shop.inspect.pause_schedule("all", by="ada")
    clock.advance(3 * EVERY)
    worker.turn()
    (paused,) = [schedule for schedule in shop.inspect.schedules() if schedule.paused]
    assert (paused.task, paused.paused_by) == ("all", "ada")
    shop.inspect.resume_schedule("all")
    clock.advance(EVERY)
    worker.turn()
    assert enqueued(shop) == {"one": 4, "all": 1, "none": 4}


def test_a_list_of_schedules_says_when_they_come(shop: App, clock: Clock) -> None:
    shown = {schedule.task: schedule for schedule in shop.inspect.schedules()}
    assert shown["one"].last_at is None
    assert shown["one"].next_at == as_datetime(1_000_010 * SECOND)
    assert shown["one"].schedule == "every 0:00:10"
    Worker(shop, clock)
    clock.advance(EVERY)
    Worker(shop, clock)
    assert shop.inspect.schedules()[0].last_at is not None


def test_a_schedule_runs_on_request_beside_its_slots(shop: App) -> None:
    assert shop.inspect.run_schedule("one").created
    with pytest.raises(NotFound, match=r'no schedule "onne". Did you mean "one"\?'):
        shop.inspect.run_schedule("onne")


def test_a_worker_fires_what_its_tasks_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app = App(url(tmp_path))
    ran: list[int] = []
    fired: list[int] = []
    fire = Scheduled.fire

    def noted(scheduled: Scheduled, at: int) -> bool:
        fired.append(at)
        return fire(scheduled, at)

    monkeypatch.setattr(Scheduled, "fire", noted)

    @app.task(schedule="* * * * * *")
    def tick() -> None:
        ran.append(1)

    with working(app, 2):
        until(lambda: len(ran) >= 2, "two ticks")
    app.close()
    assert fired[1] - fired[0] == SECOND


def test_a_worker_that_runs_sees_what_is_set_and_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timetable, "LOOK_EVERY", 0.05)
    app = App(url(tmp_path))
    ran: list[str] = []

    @app.task(name="tick")
    def tick(word: str) -> None:
        ran.append(word)

    with working(app, 2):  # it has no schedule when it starts
        until(app.inspect.workers, "the worker's beat")
        other = App(url(tmp_path))
        other.inspect.set_schedule("a", other.using().bind("tick", "a"), timedelta(seconds=1))
        until(lambda: ran.count("a") >= 2, "two ticks")
        other.inspect.set_schedule("a", other.using().bind("tick", "b"), "* * * * * *")
        after = ran.count("a") + app.inspect.count(task="tick")  # those that are on their way
        until(lambda: ran.count("b") >= 2, "two other ticks")
        assert ran.count("a") <= after
        other.inspect.drop_schedule("a")
        after = len(ran) + app.inspect.count(task="tick")
        other.inspect.set_schedule("c", other.using().bind("tick", "c"), "* * * * * *")
        until(lambda: ran.count("c") >= 2, "ticks of another schedule")
        assert ran.count("a") + ran.count("b") <= after
    other.close()
    app.close()


#: Writes down which occurrences it fires, and each run.
PROGRAM = """
from laneway import App
from laneway.desk.schedules import Scheduled
from laneway.worker.duties import timetable
from datetime import timedelta
timetable.LOOK_EVERY = 1.0
app = App("sqlite:///jobs.db")

fire = Scheduled.fire

def note(path, line):
    with open(path, "a") as file:
        file.write(line + "\\n")

def noted(scheduled, at):
    fired = fire(scheduled, at)
    if fired:
        note("fired", f"{scheduled.name} {at}")
    return fired

Scheduled.fire = noted

def declare(number):
    @app.task(name=f"tick-{number}", schedule="* * * * * *" if number % 2 else timedelta(seconds=1))
    def tick() -> None:
        note("ticks", f"tick-{number}")

for number in range(10):
    declare(number)

@app.task
def tock(number: int) -> None:
    note("ticks", f"tock-{number}")
"""
SECONDS = often(3, 20)


@pytest.mark.soak
@pytest.mark.parametrize("killed", [False, True])
def test_two_fleets_fire_each_occurrence_of_many_schedules_exactly_once(tmp_path: Path, killed: bool) -> None:
    """Ten are declared, ten are kept in the store, five of them set while the fleets run; with kill -9 of workers in between."""
    (tmp_path / "app.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "laneway", "worker", "-s", "5"]
    app = App(url(tmp_path))
    for number in range(5):
        _keep(app, number)
    fleets = [subprocess.Popen([*command, "-p", str(number)], cwd=tmp_path, stderr=subprocess.PIPE) for number in (1, 2)]
    ticks = tmp_path / "ticks"

    def lines(word: str) -> int:
        return ticks.exists() and ticks.read_text().count(word)

    try:
        until(lambda: len(app.inspect.workers()) == 3, "three workers")
        for number in range(5, 10):
            _keep(app, number)
        for second in range(1, SECONDS + 1):
            until(lambda n=second: lines("tick-") >= 10 * n, f"{second} seconds of ticks")  # type: ignore[misc]
            if killed:
                os.kill(app.inspect.workers()[second % 2].pid, signal.SIGKILL)
                until(lambda: len(app.inspect.workers()) >= 3, "the next worker")
        until(lambda: lines("tock-9\n") >= 2, "ticks of the last schedule")
    finally:
        said = [_stopped(fleet, expected=not killed) for fleet in fleets]
    per_schedule: dict[str, list[int]] = defaultdict(list)
    for line in (tmp_path / "fired").read_text().splitlines():
        name, at = line.split()
        per_schedule[name].append(int(at) // SECOND)
    # A worker that is killed may have fired what it did not write down, and a run that was killed is repeated.
    assert len(per_schedule) == 20
    gaps = 0
    for name, seconds in per_schedule.items():
        assert len(set(seconds)) == len(seconds), (name, said)
        gaps += max(seconds) - min(seconds) + 1 - len(seconds)
    assert gaps <= (SECONDS if killed else 0), said
    ran, left = Counter(ticks.read_text().split()), Counter(_call(job) for job in _waiting(app))
    if not killed:
        assert ran + left == {name: len(seconds) for name, seconds in per_schedule.items()}, said
    app.close()


def _keep(app: App, number: int) -> None:
    app.store.beat([WorkerInfo("nobody", host="nowhere", tasks=("app.tock",))])
    call = app.using().bind("app.tock", number)
    app.inspect.set_schedule(f"tock-{number}", call, "* * * * * *" if number % 2 else timedelta(seconds=1))
    app.store.recover("nobody", "it never was")


def _call(job: JobInfo) -> str:
    return f"tock-{job.args[0]}" if job.args else job.task


def _waiting(app: App) -> list[JobInfo]:
    return app.inspect.jobs(limit=1000)


def _stopped(fleet: subprocess.Popen[bytes], *, expected: bool) -> Any:
    fleet.terminate()
    said = fleet.communicate(timeout=DEADLINE)[1].decode()
    assert fleet.returncode == 0, said
    found = re.findall(r"(?:WARNING|ERROR).*", said)
    assert not found or not expected, said
    return found
