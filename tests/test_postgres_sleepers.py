"""No wake-up of a sleeping worker is lost on PostgreSQL. Nobody looks by itself here, so each one that is lost is seen."""

from __future__ import annotations

import contextlib
import json
import os
import random
import threading
import time
from collections.abc import Callable, Iterator

import pytest

import postgresbench
from laneway.core.job import Job
from laneway.core.outcome import Done
from laneway.ids import new_id
from laneway.store.contract import ClaimRequest
from settling import settled_alike

if postgresbench.why_not() and os.environ.get("CI") != "true":
    pytest.skip(postgresbench.why_not(), allow_module_level=True)

import psycopg

from laneway.store.postgres import PostgresStore, bell
from laneway.store.postgres.connection import PostgresConnection
from postgres_scene import is_open

#: Seconds in which a worker that was woken has looked.
SOON = 10.0


@pytest.fixture(autouse=True)
def never_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bell, "LOOK_EVERY", 60.0)


@pytest.fixture
def stores() -> Iterator[Callable[[], PostgresStore]]:
    """What makes stores on an empty database."""
    server = postgresbench.emptied()
    with contextlib.ExitStack() as stack:

        def make() -> PostgresStore:
            return stack.enter_context(contextlib.closing(PostgresStore(server.url, timeout=SOON)))

        make().push([job()])  # so that the tables are there, and the queue
        take(make())
        yield make


def job(delay: int = 0) -> Job:
    """A plain job, which `push_one` takes."""
    return Job(new_id(), "t", "q", b"[[],{}]", delay=delay)


def take(store: PostgresStore) -> list[str]:
    claims = store.exchange("w", [], [ClaimRequest("q", 100)], 100).claims
    store.exchange("w", [settled_alike(claim, Done()) for claim in claims], [], 0)
    return [claim.unit.id for claim in claims]


class Sleeper:
    """A worker that sleeps whenever there is nothing to do, and notes what it has done."""

    def __init__(self, store: PostgresStore) -> None:
        self.done: list[str] = []
        self.store = store
        self._stops = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stops:
            taken = take(self.store)
            self.done += taken
            self.store.bell.heard(bool(taken))
            if not taken:
                self.store.wait(60)

    @property
    def sleeps(self) -> bool:
        listener = self.store.bell._listener
        return listener is not None and listener._holds and listener.is_known.is_set() and bool(self.store.bell._beds)

    def stop(self) -> None:
        self._stops = True
        self.store.wake()
        self._thread.join(SOON)
        assert not self._thread.is_alive()


@pytest.fixture
def sleeper(stores: Callable[[], PostgresStore]) -> Iterator[Callable[[], Sleeper]]:
    begun: list[Sleeper] = []

    def begin() -> Sleeper:
        begun.append(Sleeper(stores()))
        return begun[-1]

    yield begin
    for one in begun:
        one.stop()


def until(what: Callable[[], object]) -> None:
    deadline = time.monotonic() + SOON
    while not what():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.002)


Make = Callable[[], PostgresStore]
Begin = Callable[[], Sleeper]


@pytest.mark.parametrize("jobs", [1, 3], ids=["one job", "many jobs"])
def test_a_push_that_did_not_see_the_sleeper_commits_after_its_last_look(stores: Make, sleeper: Begin, jobs: int) -> None:
    late = stores()
    new = [job() for _ in range(jobs)]
    with is_open(late):
        late.push(new)
        asleep = sleeper()
        until(lambda: asleep.sleeps)
        time.sleep(0.05)  # so that it has looked, and sleeps deeply
        assert asleep.done == []
    until(lambda: len(asleep.done) == jobs)


@pytest.mark.parametrize("jobs", [1, 3], ids=["one job", "many jobs"])
def test_a_push_that_comes_after_the_last_look_rings(stores: Make, sleeper: Begin, jobs: int) -> None:
    asleep = sleeper()
    until(lambda: asleep.sleeps)
    time.sleep(0.05)
    stores().push([job() for _ in range(jobs)])
    until(lambda: len(asleep.done) == jobs)


def test_a_turn_that_did_not_see_the_sleeper_commits_after_its_last_look(stores: Make, sleeper: Begin) -> None:
    late = stores()
    with late.turn() as turn:
        late.push_jobs(turn, [job()])
        asleep = sleeper()
        until(lambda: asleep.sleeps)
        time.sleep(0.05)
        assert asleep.done == []
    until(lambda: asleep.done)


@pytest.mark.parametrize("jobs", [1, 3], ids=["one job", "many jobs"])
def test_a_sleeper_waits_for_no_transaction_of_a_user(stores: Make, sleeper: Begin, jobs: int) -> None:
    new = json.dumps([{"task": "t", "queue": "q"}] * jobs)
    with psycopg.connect(postgresbench.server().url) as connection:
        connection.execute("select laneway.enqueue(%s)", (new,))
        asleep = sleeper()
        until(lambda: asleep.sleeps)
        listener = asleep.store.bell._listener
        assert listener is not None
        assert listener._doubt == 0
        connection.rollback()
    stores().push([job()])
    until(lambda: asleep.done)


def test_a_ring_that_comes_while_the_listener_looks_for_pushes_is_heard(stores: Make, sleeper: Begin) -> None:
    late, other = stores(), stores()
    new = job()
    with is_open(late):
        late.push([job()])  # as long as this is open the listener looks for it
        asleep = sleeper()
        until(lambda: asleep.sleeps)
        listener = asleep.store.bell._listener
        assert listener is not None
        is_seen = listener._is_seen_by_all

        def and_meanwhile(line: PostgresConnection) -> bool:
            del listener._is_seen_by_all
            other.push([new])
            time.sleep(0.1)  # the notification is at the socket then, and is read with the answer
            return is_seen(line)

        listener._is_seen_by_all = and_meanwhile  # type: ignore[method-assign]
        until(lambda: asleep.done == [new.id])


def test_nobody_rings_where_nobody_sleeps(stores: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    store = stores()
    rings: list[None] = []
    monkeypatch.setattr(store, "ring", lambda: rings.append(None))
    for new in ([job()], [job(), job()], [job(delay=1)]):
        store.push(new)
    assert rings == []


def test_no_wake_up_is_lost_in_a_storm(stores: Make, sleeper: Begin) -> None:
    """Sleepers lie down and are woken all the time, while pushes of all kinds come and go."""
    sleepers = [sleeper() for _ in range(2)]
    pushed: list[str] = []

    def produce(seed: int) -> None:
        chance = random.Random(seed)  # noqa: S311 - a storm is no secret
        store = stores()
        for _ in range(60):
            new = [job() for _ in range(chance.choice((1, 1, 2)))]
            store.push(new)
            pushed.extend(each.id for each in new)
            if chance.random() < 0.5:  # until they have had the time to fall asleep
                time.sleep(chance.random() * 0.01)
        until(lambda: set(pushed) <= {id_ for one in sleepers for id_ in one.done})

    errors: list[BaseException] = []

    def safely(seed: int) -> None:
        try:
            produce(seed)
        except BaseException as error:  # noqa: BLE001 - it is raised below
            errors.append(error)

    threads = [threading.Thread(target=safely, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert errors == []
