"""Workers and a producer on PostgreSQL while something happens to its server, and what its tests share."""

from __future__ import annotations

import itertools
import re
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable

import pytest

import postgresbench
from conftest import SOAK
from fleetbench import tell
from laneway import App, Worker
from laneway.core.job import Claim, Job
from laneway.core.outcome import Done, Settled
from laneway.errors import StoreError, StoreUnavailable
from laneway.ids import new_id
from laneway.store.contract import ClaimRequest, WorkerInfo
from laneway.store.postgres import PostgresStore
from settling import settled_alike
from workbench import DEADLINE, Running, until

__all__ = ["AGAIN_WITHIN", "Scene", "claim", "done", "fails", "job", "restart", "terminate", "trouble", "works"]

#: So soon after the end of a trouble a job runs that is enqueued then, seconds; on a machine that others keep busy, too.
AGAIN_WITHIN = 2.0 if SOAK else 5.0
LANES = 4


def job(queue: str = "default", lane: str | None = None, body: bytes = b"[[1],{}]") -> Job:
    return Job(new_id(), "app.task", queue, body, lane)


def claim(store: PostgresStore, queue: str = "default", most: int = 10, worker: str = "w") -> list[Claim]:
    return store.exchange(worker, [], [ClaimRequest(queue, most)], most).claims


def done(claims: list[Claim]) -> list[Settled]:
    return [settled_alike(one, Done(), 1, 2) for one in claims]


def works(store: PostgresStore) -> None:
    """Push, claim, settle and beat."""
    one = job("check")
    assert store.push([one]) == [None]
    claims = claim(store, "check")
    assert [held.unit.id for held in claims] == [one.id]
    assert store.exchange("w", done(claims), [], 0).refused == []
    store.beat([WorkerInfo("w")])


def fails(verb: Callable[[], object], kind: type[StoreError], says: str, *, written: bool | None = False) -> float:
    """Check how a verb fails; return after how many seconds."""
    begun = time.monotonic()
    with pytest.raises(StoreError) as caught:
        verb()
    assert type(caught.value) is kind, repr(caught.value)
    assert re.search(says, str(caught.value)), str(caught.value)
    assert "\n" not in str(caught.value)
    assert not isinstance(caught.value, StoreUnavailable) or caught.value.written is written
    return time.monotonic() - begun


class Scene:
    """Two workers and a producer, each with a store of its own, and what they have seen."""

    def __init__(self, url: str, workers: int = 2, enqueue_timeout: float = 2.0) -> None:
        self.accepted: list[tuple[str, str]] = []  #: ids and lanes, in order
        self.unsure: set[str] = set()
        self.failures: list[tuple[float, StoreError]] = []
        self.runs: list[tuple[str, str, float, float]] = []  #: id, lane, begin and end
        self._ends = threading.Event()
        self._apps = [App(url, dead_after=60, enqueue_timeout=enqueue_timeout) for _ in range(workers + 1)]
        self._workers = [Running(Worker(app, 4, beat=0.5)) for app in self._apps[1:] if self._declare(app)]
        self._task = self._declare(self._apps[0])
        self._thread = threading.Thread(target=self._produce, daemon=True)
        self._thread.start()
        until(lambda: len(self.runs) > 20, "work before the trouble")

    def _declare(self, app: App) -> object:
        def step(id_: str, lane: str) -> None:
            begun = time.monotonic()
            time.sleep(0.001)
            self.runs.append((id_, lane, begun, time.monotonic()))

        return app.task(name="step")(step)

    def _produce(self) -> None:
        number, generation = 0, 0
        while not self._ends.wait(0.005):
            number += 1
            id_, lane = f"j{number}", f"l{number % LANES}.{generation}" if number % 2 else ""
            begun = time.monotonic()
            try:
                using = self._apps[0].using(id=id_, lane=lane) if lane else self._apps[0].using(id=id_)
                using.enqueue("step", id_, lane)
                self.accepted.append((id_, lane))
            except StoreUnavailable as error:
                self.failures.append((time.monotonic() - begun, error))
                if error.written is not False:
                    self.unsure.add(id_)
                    generation += 1  # whether it is in is not known: its lane ends with it

    def again(self) -> float:
        """Wait until a job runs that was accepted from now on; return after how many seconds."""
        since, before = time.monotonic(), len(self.accepted)
        until(lambda: len(self.accepted) > before, "an enqueue after the trouble")
        id_ = self.accepted[before][0]
        until(lambda: any(run[0] == id_ for run in self.runs[-100:]), "a run after the trouble")
        return time.monotonic() - since

    def finish(self, *, repeats: bool = False) -> None:
        """End, and judge: nothing lost, nothing overtaken, no lane twice at once; nothing run again unless that is allowed."""
        self._ends.set()
        self._thread.join(DEADLINE)
        assert not self._thread.is_alive(), "an enqueue hangs"
        until(lambda: sum(self._apps[0].inspect.counts().values()) == 0, "an empty store")
        for running in self._workers:
            running.worker.stop()
        for running in self._workers:
            running.join()
        ran = Counter(id_ for id_, *_ in self.runs)
        assert {id_ for id_, _ in self.accepted} - ran.keys() == set(), "accepted and lost"
        assert ran.keys() <= {id_ for id_, _ in self.accepted} | self.unsure
        if not repeats:
            assert [id_ for id_, number in ran.items() if number > 1] == []
        lanes: dict[str, list[tuple[float, float, int]]] = defaultdict(list)
        for id_, lane, begun, ended in self.runs:
            lanes[lane].append((begun, ended, int(id_[1:])))
        for lane, runs in lanes.items():
            if lane:
                runs.sort()
                assert all(one[1] <= two[0] for one, two in itertools.pairwise(runs)), "two of a lane at once"
                assert [number for *_, number in runs] == sorted(number for *_, number in runs), "overtaken in a lane"
        for took, error in self.failures:
            assert took < 2.0 + AGAIN_WITHIN, "an enqueue that took too long"
            assert "\n" not in str(error)
            assert str(error).startswith("the store postgresql://"), str(error)
        for app in self._apps:
            app.close()


def trouble(
    url: str, happens: Callable[[], object], *, times: int = 1, repeats: bool = False, enqueue_timeout: float = 2.0
) -> Scene:
    """Let something happen while all work; see how soon they go on, and that all is well in the end."""
    scene = Scene(url, enqueue_timeout=enqueue_timeout)
    took = []
    for _ in range(times):
        happens()
        took.append(scene.again())
    scene.finish(repeats=repeats)
    tell(f"again after {max(took):.3f} s at most; {len(scene.runs)} runs, {len(scene.failures)} failures")
    assert max(took) < AGAIN_WITHIN
    return scene


def restart(server: postgresbench.Server, away: float = 0.0, *, kill: bool = False) -> None:
    server.stop(kill=kill)
    time.sleep(away)
    server.start()


def terminate(server: postgresbench.Server) -> int:
    """End all sessions of ours; return how many were in the middle of something."""
    ended = server.ask("SELECT state, pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'laneway'")
    return sum(state == "active" for state, _ in ended)
