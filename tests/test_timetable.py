"""The timetable: every slot fires once, and missed ones as the task says."""

from __future__ import annotations

import re
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
from laneway.store.inspection import JobInfo
from laneway.store.sqlite import SQLiteInspect, SQLiteStore
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


#: Writes down which slots it fires, and each run.
PROGRAM = """
from laneway import App
from laneway.desk.schedules import Scheduled
from datetime import timedelta
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
"""
SECONDS = often(5, 20)


@pytest.mark.soak
def test_two_fleets_fire_each_occurrence_of_ten_schedules_exactly_once(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "laneway", "worker", "-s", "5"]
    fleets = [subprocess.Popen([*command, "-p", str(number)], cwd=tmp_path, stderr=subprocess.PIPE) for number in (1, 2)]
    ticks = tmp_path / "ticks"
    try:
        until(lambda: ticks.exists() and len(ticks.read_text().splitlines()) >= 10 * SECONDS, f"{SECONDS} seconds of ticks")
    finally:
        said = [_stopped(fleet) for fleet in fleets]
    per_schedule: dict[str, list[int]] = defaultdict(list)
    for line in (tmp_path / "fired").read_text().splitlines():
        name, at = line.split()
        per_schedule[name].append(int(at) // SECOND)
    assert len(per_schedule) == 10
    for seconds in per_schedule.values():
        assert sorted(seconds) == list(range(min(seconds), min(seconds) + len(seconds))), said
    ran, left = Counter(ticks.read_text().split()), Counter(job.task for job in _waiting(tmp_path))
    assert ran + left == {name: len(seconds) for name, seconds in per_schedule.items()}, said


def _waiting(folder: Path) -> list[JobInfo]:
    app = App(url(folder))
    found = app.inspect.jobs(limit=1000)
    app.close()
    return found


def _stopped(fleet: subprocess.Popen[bytes]) -> Any:
    fleet.terminate()
    said = fleet.communicate(timeout=DEADLINE)[1].decode()
    assert fleet.returncode == 0, said
    return re.findall(r"(?:WARNING|ERROR).*", said)
