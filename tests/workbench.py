"""What the worker's tests share: workers in threads, deadlines, a look at a job, and a store that fails on demand."""

from __future__ import annotations

import contextlib
import importlib.util
import sqlite3
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import msgspec

from laneway import App, JobHandle, Worker
from laneway.core.outcome import Settled
from laneway.store.contract import BeatReply, ClaimRequest, Exchange, Store, WorkerInfo
from laneway.store.two_steps import begin_exchange

#: Seconds after which something hangs. No test waits so long if all is well.
DEADLINE = 60.0
#: What happens at once does so within these seconds, even on a busy machine; what a test shows not to be waited for takes longer.
SOON = 10.0
ALL_DONE = {"scheduled": 0, "ready": 0, "retrying": 0, "blocked": 0, "running": 0, "dead": 0}


def url(folder: Path) -> str:
    return f"sqlite:///{folder / 'jobs.db'}"


def load(path: Path) -> ModuleType:
    """Load a program of ours that is in no package."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look it up there
    spec.loader.exec_module(module)
    return module


def until(condition: Callable[[], object], what: str = "the condition") -> None:
    """Look until something holds, for as long as a test may take: often at first, then less, since others need the machine."""
    start = time.monotonic()
    while not condition():
        waited = time.monotonic() - start
        assert waited < DEADLINE, f"{what} did not come true"
        time.sleep(min(max(waited / 10, 0.002), 0.02))


def wait(event: threading.Event) -> None:
    assert event.wait(DEADLINE), "the event did not happen"


class Running:
    """A worker that runs in a thread."""

    def __init__(self, worker: Worker, *, burst: bool = False) -> None:
        self.worker = worker
        self.error: BaseException | None = None
        self._burst = burst
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.worker.run(burst=self._burst)
        except BaseException as error:  # noqa: BLE001 - raised again where the test looks
            self.error = error

    def join(self) -> None:
        """Wait until it has returned."""
        self._thread.join(DEADLINE)
        assert not self._thread.is_alive(), "the worker did not return"
        if isinstance(self.error, Exception):
            raise self.error
        assert self.error is None  # a KeyboardInterrupt would end the tests


@contextlib.contextmanager
def working(app: App, slots: int = 5, **options: Any) -> Iterator[Worker]:
    """A worker at work while the block runs; stopped at its end."""
    running = Running(Worker(app, slots, **options))
    try:
        yield running.worker
    finally:
        running.worker.stop()
        running.join()


def burst(app: App, slots: int = 5, **options: Any) -> None:
    """Let a worker run what is due, with a deadline."""
    Running(Worker(app, slots, **options), burst=True).join()


def info(app: App, handle: JobHandle[Any]) -> Any:
    """Return a job as it stands in the store."""
    found = app.inspect.job(handle.id)
    assert found is not None
    return found


def worker_ids(app: App) -> set[str]:
    """Return who holds claims."""
    return {job.worker for job in app.inspect.jobs("running", limit=1000) if job.worker}


class Faulty:
    """A store whose exchanges may get lost, on the way there or on the way back."""

    def __init__(self, real: Store) -> None:
        self._real = real
        self.before: Callable[[], object] = lambda: None
        self.after: Callable[[], object] = lambda: None
        self.beating: Callable[[], object] = lambda: None
        self.settled: Counter[tuple[str, int]] = Counter()  # by id and token: what the store took
        self.holds: Callable[[Settled], bool] = lambda _: False  # somebody else's transaction holds it: not now
        self.calls: list[str] = []

    def exchange(self, worker: str, settled: Sequence[Settled], wants: Sequence[ClaimRequest], limit: int) -> Exchange:
        return self.begin(worker, settled, wants, limit)()

    def begin(self, worker: str, settled: Sequence[Settled], wants: Sequence[ClaimRequest], limit: int) -> Callable[[], Exchange]:
        self.calls.append("exchange")
        self.before()
        later = frozenset(item.claim.token for item in settled if self.holds(item))
        settled = [item for item in settled if item.claim.token not in later]
        hear = begin_exchange(self._real, worker, settled, wants, limit)

        def heard() -> Exchange:
            answer = msgspec.structs.replace(hear(), later=later)
            self.settled.update((s.claim.unit.id, s.claim.token) for s in settled if s.claim.unit.id not in answer.refused)
            self.after()
            return answer

        return heard

    def give_back(self, worker: str, keep: Sequence[int] = ()) -> list[str]:
        self.before()
        ids = self._real.give_back(worker, keep)
        self.after()
        return ids

    def beat(self, workers: Sequence[WorkerInfo]) -> dict[str, BeatReply]:
        self.beating()
        self.calls.append("beat")
        return self._real.beat(workers)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


def faulty(app: App) -> Faulty:
    """Put a faulty store before an app's own."""
    made = Faulty(app.store)
    app._stores = (cast(Store, made), app.store_inspect)
    return made


def ids_in_store(url: str) -> set[str]:
    """Return the ids of all jobs in a store, as a program that comes later sees them."""
    app = App(url)
    try:
        found, after = set[str](), None
        while True:
            page = app.inspect.jobs(limit=10_000, after=after)
            found.update(job.id for job in page)
            after = page.next
            if after is None:
                return found
    finally:
        app.close()


def is_intact(url: str) -> bool:
    """Say whether SQLite finds nothing wrong with a store's file. Other stores have none."""
    if not url.startswith("sqlite"):
        return True
    connection = sqlite3.connect(file_of(url))
    try:
        return connection.execute("pragma integrity_check").fetchall() == [("ok",)]
    finally:
        connection.close()


def file_of(url: str) -> str:
    return url.removeprefix("sqlite:///").partition("?")[0]
