"""The stage for races of the PostgreSQL store: sessions that stand still in the middle of a step while others go by."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Generator, Sequence
from types import TracebackType
from typing import Any

import psycopg
import pytest

from laneway.core.job import Claim, Gather, Job, lane_id
from laneway.core.outcome import Done, ErrorInfo, Retrying, Settled
from laneway.store.contract import ClaimRequest
from laneway.store.postgres import PostgresInspect, PostgresStore
from laneway.store.postgres.connection import Broken, PostgresConnection, PostgresError
from laneway.store.postgres.statements import VERSION
from laneway.store.postgres.wire import Sent
from settling import settled_alike

__all__ = [
    "FOLD", "HOUR", "Beside", "Scene", "done", "fold", "insert_lanes", "is_open", "job", "payload", "take", "until_two_wait",
    "waits_for_its_retry",
]  # fmt: skip

BODY = b'[["x"],{}]'
HOUR = 3_600_000_000
#: Seconds until a step that waits for nobody must be over.
DEADLINE = 20.0


class Scene:
    """A database and the sessions of a race."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._stores: list[PostgresStore] = []
        self.server = psycopg.connect(url, autocommit=True)

    def store(self) -> PostgresStore:
        """Return a store with one connection: what it does in an open transaction is one with it."""
        made = PostgresStore(self._url, connections=1, timeout=DEADLINE, enqueue_timeout=DEADLINE)
        self._stores.append(made)
        return made

    def ask(self, sql: str, *values: object) -> list[Any]:
        """Run a statement by itself."""
        answer = self.server.execute(sql.encode(), values or None)
        return answer.fetchall() if answer.description else []

    @contextlib.contextmanager
    def session(self) -> Generator[psycopg.Connection]:
        """Give a session with an open transaction, which is committed at the end of the block."""
        with psycopg.connect(self._url) as session:
            yield session

    def make(self, script: str) -> None:
        """Make the tables and functions anew."""
        with self.session() as session:
            session.execute("drop schema laneway cascade")
            session.execute(script.encode())

    def push(self, *jobs: Job) -> None:
        self.store().push(jobs)

    def claim(self, worker: str, *, most: int = 1, queue: str = "q") -> list[Claim]:
        return take(self.store(), worker, most=most, queue=queue)

    def until_waits(self, thread: threading.Thread) -> None:
        """Wait until a session waits for a lock, or the thread is over."""
        waiting = "select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
        deadline = time.monotonic() + DEADLINE
        while thread.is_alive() and not self.ask(waiting):
            assert time.monotonic() < deadline, "neither did it wait nor end"
            time.sleep(0.005)

    def stranded(self) -> str:
        """Say which lanes have parked jobs and no holder: nobody will ever let these out."""
        parked = "select queue, lane from laneway.job where state = 3 and side is null"
        held = "select queue, lane from laneway.job where holds = 1"
        return f"stranded: {rows}" if (rows := self.ask(f"{parked} except {held}")) else ""

    def miscounted(self) -> str:
        """Say where counts differ from rows."""
        found = {state: n for state, n in PostgresInspect(self.store()).counts().items() if n}
        there = self.ask("select count(*) from laneway.job")[0][0]
        return f"miscounted: {found}, and there are {there}" if sum(found.values()) != there else ""

    def close(self) -> None:
        for store in self._stores:
            store.close()
        self.server.close()


def job(id_: str, lane: str | None = "L", **more: Any) -> Job:
    return Job(id_, "t", more.pop("queue", "q"), BODY, lane, **more)


def payload(lane: str, text: str) -> Job:
    return Job(lane_id("c", lane), "t", "c", f'"{text}"'.encode(), lane, gather=Gather())


def take(store: PostgresStore, worker: str, *, most: int = 1, queue: str = "q") -> list[Claim]:
    return store.exchange(worker, [], [ClaimRequest(queue, most)], most).claims


def done(claims: Sequence[Claim]) -> list[Settled]:
    return [settled_alike(claim, Done()) for claim in claims]


class _Within(Sent):
    """What sends within an open transaction: its connection is neither taken nor given back."""

    def __enter__(self) -> PostgresConnection:
        return self._lines[0]

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if isinstance(error, Broken | PostgresError):
            raise self._wire.translate(error) from error

    def behind(self, until: float) -> Sent:
        return _Within(self._wire, until, self._lines)


@contextlib.contextmanager
def is_open(store: PostgresStore, end: str = "commit") -> Generator[None]:
    """What the store does in the block is in one transaction, which ends with it. Only for what is one function."""
    store._folded = float("inf")  # a turn would end the transaction
    with store.wire.lend() as line:
        line.ask("begin")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(store.wire, "lend", lambda _timeout=None: contextlib.nullcontext(line))
            patch.setattr(store.wire, "sending", lambda _timeout=None: _Within(store.wire, 0, [line]))
            yield
        line.ask(end)


class Beside:
    """`Beside(scene, verb).start()` runs a verb in a thread, and returns when it waits for somebody or is over."""

    def __init__(self, scene: Scene, verb: Callable[[], Any]) -> None:
        self._scene = scene
        self._verb = verb
        self.answer: Any = None
        self.error: Exception | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            self.answer = self._verb()
        except Exception as error:  # noqa: BLE001 - it is judged by the race
            self.error = error

    @property
    def waits(self) -> bool:
        return self._thread.is_alive()

    def start(self) -> Beside:
        self._thread.start()
        self._scene.until_waits(self._thread)
        return self

    def join(self) -> Any:
        self._thread.join(DEADLINE)
        assert not self._thread.is_alive(), "it still waits"
        return self.answer

    @property
    def deadlock(self) -> str:
        cause = self.error.__cause__ if self.error else None
        return (
            "deadlock" if isinstance(cause, PostgresError) and cause.code == "40P01" else repr(self.error) if self.error else ""
        )


FOLD = f"select laneway.fold_v{VERSION}(10000000, 1000)".encode()


def fold(scene: Scene) -> None:
    with scene.session() as session:
        session.execute(FOLD)


def waits_for_its_retry(scene: Scene) -> None:
    """Let job 1 hold lane L, and wait."""
    scene.push(job("1"))
    store = scene.store()
    [claim] = take(store, "a")
    store.exchange("a", [settled_alike(claim, Retrying(HOUR, ErrorInfo("E", "")))], [], 0)


def insert_lanes(session: psycopg.Connection, *lanes: str) -> None:
    """Insert lanes of a collector as a push does."""
    for number, lane in enumerate(lanes):
        session.execute(
            "insert into laneway.job (seq, id, queue, task, lane, rank, place, due, state, enqueued, side, body) "
            "values (%s, %s, 'c', 't', %s, 0, 0, 0, 1, 0, 0, '')",
            (-number - 1, lane_id("c", lane), lane),
        )


def until_two_wait(scene: Scene) -> None:
    waiting = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
    deadline = time.monotonic() + DEADLINE
    while scene.ask(waiting) != [(2,)]:
        assert time.monotonic() < deadline, "two were to wait"
        time.sleep(0.005)
