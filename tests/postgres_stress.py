"""Who stresses the PostgreSQL store: workers and producers, and what they note outside the store.

Producers push directly, and in transactions that commit late, roll back, or are prepared in two phases; they cancel, reschedule
and replay jobs. Workers note when each run begins and ends. Answers of the server get lost on purpose.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from laneway.core.job import Claim, Gather, Job, lane_id
from laneway.core.outcome import Cancelled, Dead, Done, ErrorInfo, Outcome, Retrying, Settled, Snoozed
from laneway.errors import StoreError, UnknownJob
from laneway.store.contract import ClaimRequest
from laneway.store.inspection import Filter
from laneway.store.postgres import PostgresInspect, PostgresStore
from laneway.store.postgres.connection import Broken, PostgresConnection
from laneway.store.postgres.push import PostgresPush
from laneway.store.sql.push import push

LANES = (None, None, None, "hot", "hot", "hot", "hot", "a", "b", "c", "d", "e", "f")
QUEUES = ("one", "one", "two")
COLLECTOR = "collected"
ERROR = ErrorInfo("Failed", "by chance")
BODY = b'[["x"],{}]'
#: How long it may take until everything is worked off, seconds without any progress.
PATIENCE = 10.0

#: How many jobs each producer makes at least, however busy the machine is.
LEAST = 150

now = time.monotonic_ns


class Evidence:
    """Notes that outlive their process."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(self, what: str, *rest: object) -> None:
        os.write(self._file, json.dumps([what, *rest]).encode() + b"\n")


class Undone(Exception):
    """Raised to roll a transaction back."""


class Faults:
    """Lets answers of the server get lost: the statement was sent, and then the connection is cut."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._reads = 0  # which of the next answers gets lost; 0: none
        read = PostgresConnection.read

        def lose(line: PostgresConnection) -> Any:
            self._reads -= 1
            if self._reads:
                return read(line)
            if chance.random() < 0.5:
                time.sleep(chance.random() * 0.01)
            with socket.socket(fileno=os.dup(line.fileno())) as cut:
                cut.shutdown(socket.SHUT_RDWR)  # the server goes on with what it has read
            raise Broken("lost on purpose")

        setattr(PostgresConnection, "read", lose)  # noqa: B010 - types know no such thing

    @contextlib.contextmanager
    def at_times(self, often: float) -> Any:
        """Let one of the answers in the block get lost, at times."""
        if self._chance.random() < often:
            self._reads = self._chance.choice((1, 1, 1, 2, 3, 5, 8))
        try:
            yield
        finally:
            self._reads = 0


# -- a worker ----------------------------------------------------------------------------------------------------


class Worker:
    """Claims, runs and settles, until it is killed or told to stop."""

    def __init__(self, url: str, folder: Path, name: str, seed: float) -> None:
        self._folder = folder
        self._name = name
        self._chance = random.Random(seed)  # noqa: S311 - chance that can be had again
        self._store = open_store(url)
        self._notes = Evidence(folder / f"worker-{name}")
        self._faults = Faults(self._chance)
        self._limit = self._chance.choice((1, 3, 10))
        self._settled: list[Settled] = []

    def work(self) -> None:
        """Go on until told to stop; what is claimed then is still run."""
        stopping = False
        while not stopping or self._settled:
            stopping = (self._folder / "stop").exists()
            try:
                claims = self._exchange(0 if stopping else self._limit)
            except StoreError as error:
                self._notes.note("fault", str(error)[-120:])
                self._after_a_fault()
                continue
            for claim in claims:
                self._run(claim)
            if not claims and not self._settled and not stopping:
                with contextlib.suppress(StoreError):
                    self._store.wait(0.005)

    def _exchange(self, limit: int) -> list[Claim]:
        # With a collector's queue all is done by statements of a turn, else by one function.
        queues = self._chance.sample(["one", "two", *[COLLECTOR] * (self._chance.random() < 0.3)], 2)
        payloads = self._chance.choice((0, 0, 2))
        wants = [ClaimRequest(queue, self._limit, lanes=2, payloads=payloads) for queue in queues]
        with self._faults.at_times(0.03):
            answer = self._store.exchange(self._name, self._settled, wants, limit)
        if answer.refused:
            self._notes.note("refused", answer.refused)
        self._settled = []
        return answer.claims

    def _after_a_fault(self) -> None:
        """Give back what the lost answer may have had. What was run is kept, and settled again: if it was, it is refused."""
        while True:
            with contextlib.suppress(StoreError), self._faults.at_times(0.1):
                self._store.give_back(self._name, [item.claim.token for item in self._settled])
                return
            time.sleep(0.01)

    def _run(self, claim: Claim) -> None:
        for unit in claim.units:
            payloads = [payload.body.decode() for payload in unit.payloads]
            self._notes.note("start", now(), unit.id, claim.queue, unit.lane, claim.token, payloads)
        if self._chance.random() < 0.1:
            time.sleep(self._chance.random() * 0.004)
        outcomes = tuple(self._outcome() for _ in claim.units)
        for unit in claim.units:
            self._notes.note("end", now(), unit.id, claim.token)
        self._settled.append(Settled(claim, outcomes, keep=1_000_000 if self._chance.random() < 0.03 else 0))

    def _outcome(self) -> Outcome:
        if (self._folder / "drain").exists() or self._chance.random() < 0.93:
            return Done()
        soon = self._chance.randrange(20_000)
        halts = self._chance.random() < 0.2
        again = Retrying(soon, ERROR)
        return self._chance.choice((again, again, Snoozed(soon), Cancelled(), Dead(ERROR, halt=halts)))


# -- a producer --------------------------------------------------------------------------------------------------


class Producer:
    """Pushes in every way there is, until its time is over."""

    def __init__(self, url: str, folder: Path, name: str, seed: float, until: float) -> None:
        self._name = name
        self._chance = random.Random(seed)  # noqa: S311
        self._store = open_store(url)
        self._inspect = PostgresInspect(self._store)
        self._notes = Evidence(folder / f"producer-{name}")
        self._faults = Faults(self._chance)
        self._until = until
        self._number = 0
        self._prepared: list[tuple[str, list[tuple[Job, int]]]] = []

    def produce(self) -> None:
        """Go on until the time is over; then commit what was prepared."""
        ways: tuple[tuple[float, Callable[[], None]], ...] = (
            (0.45, self._directly), (0.3, self._in_a_transaction), (0.1, self._payloads), (0.1, self._act),
            (0.05, self._commit_prepared),
        )  # fmt: skip
        while time.time() < self._until or self._number < LEAST:
            [way] = self._chance.choices([way for _, way in ways], [share for share, _ in ways])
            try:
                way()
            except StoreError as error:
                self._notes.note("fault", str(error)[-120:])
            time.sleep(self._chance.random() * 0.003)
        while self._prepared:
            with contextlib.suppress(StoreError):
                self._commit_prepared()

    def _job(self, *, unique: bool = False) -> Job:
        self._number += 1
        delay = self._chance.choice((0, 0, 0, 0, 0, 0, 0, 0, self._chance.randrange(30_000)))
        lane = self._chance.choice(LANES)
        job = Job(
            f"{self._name}-{self._number}", "t", self._chance.choice(QUEUES), BODY, lane, delay=delay,
            priority=self._chance.choice((0, 0, 0, 5)) if lane is None else 0,
            unique=f"u{self._chance.randrange(5)}" if unique and self._chance.random() < 0.1 else None,
            expires=1 if self._chance.random() < 0.02 else 0,
        )  # fmt: skip
        self._notes.note("tried", job.id)
        return job

    def _pushed(self, job: Job, begun: int) -> None:
        self._notes.note("pushed", job.id, job.queue, job.lane, begun, now(), bool(job.delay), bool(job.expires))

    def _directly(self) -> None:
        jobs = [self._job(unique=True) for _ in range(self._chance.choice((1, 1, 1, 2, 5)))]
        begun = now()
        for _ in range(20):  # an answer may get lost: the same again
            with contextlib.suppress(StoreError), self._faults.at_times(0.02):
                answers = self._store.push(jobs)
                for job, met in zip(jobs, answers, strict=True):
                    if met in (None, job.id):
                        self._pushed(job, begun)
                return
            self._notes.note("fault", "push")

    def _in_a_transaction(self) -> None:
        pushed: list[tuple[Job, int]] = []
        with self._store.wire.lend() as line:
            line.ask("begin")
            for _ in range(self._chance.randrange(1, 5)):
                pushed.append((self._job(), now()))
                PostgresPush(self._store).insert(line, [pushed[-1][0]])
                if self._chance.random() < 0.3:
                    time.sleep(self._chance.random() * 0.03)
            end = self._chance.random()
            if end < 0.7:
                line.ask("commit")
            elif end < 0.9 or len(self._prepared) > 2:
                line.ask("rollback")
            else:
                name = f"{self._name}-{self._number}"
                self._prepared.append((name, pushed))
                line.ask(f"prepare transaction '{name}'")
                return
        for job, begun in pushed:
            if end < 0.7:
                self._pushed(job, begun)
            else:
                self._notes.note("undone", job.id)

    def _commit_prepared(self) -> None:
        if not self._prepared:
            return
        name, pushed = self._prepared[0]
        with self._store.wire.lend() as line:
            if not line.ask("select 1 from pg_prepared_xacts where gid = $1", (name,)):
                self._prepared.pop(0)  # the session ended before it was prepared, or the answer of the commit was lost
                return
            line.ask(f"commit prepared '{name}'")
        self._prepared.pop(0)
        for job, begun in pushed:
            self._pushed(job, begun)

    def _payloads(self) -> None:
        jobs = []
        for lane in self._chance.sample("uvwxyz", self._chance.randrange(1, 4)):
            self._number += 1
            body = f'"{self._name}-{self._number}"'
            jobs.append(Job(lane_id(COLLECTOR, lane), "c", COLLECTOR, body.encode(), lane, gather=Gather()))
            self._notes.note("tried", body)
        undone = self._chance.random() < 0.2
        with contextlib.suppress(Undone), self._store.turn() as turn:
            push(turn, jobs, self._store.push_jobs)
            if self._chance.random() < 0.2:
                time.sleep(self._chance.random() * 0.01)
            if undone:
                raise Undone
        for job in jobs:
            self._notes.note("undone" if undone else "collected", job.body.decode())

    def _act(self) -> None:
        kind = self._chance.random()
        if kind < 0.3:
            self._store.repeat(lambda: self._inspect.act_all("retry", Filter(state="dead")))
            return
        id_ = f"{self._name}-{max(1, self._number - self._chance.randrange(20))}"
        # Whatever comes of it: this job may leave without a run, or get another place.
        self._notes.note("touched", id_)
        with contextlib.suppress(UnknownJob):
            if kind < 0.7:
                self._store.repeat(lambda: self._inspect.cancel(id_))
            else:
                self._store.repeat(lambda: self._inspect.reschedule(id_, self._chance.randrange(10_000), 0))


def open_store(url: str) -> PostgresStore:
    return PostgresStore(url, timeout=20.0, enqueue_timeout=20.0)
